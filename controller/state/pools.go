package state

import (
	"github.com/prometheus/client_golang/prometheus"

	"skipper/controller/pool"
)

// PoolCollector shows the stock of each pool. Its labels are bounded: pools are
// the cluster's Deployments.
type PoolCollector struct {
	pods          pods
	waiting       func() map[pool.Name]int
	stock, queued *prometheus.Desc
}

// NewPoolCollector returns a collector over the view's pools and who waits there.
func NewPoolCollector(p pods, waiting func() map[pool.Name]int) *PoolCollector {
	labels := []string{"namespace", "deployment"}
	return &PoolCollector{
		pods: p, waiting: waiting,
		stock: prometheus.NewDesc("skipper_controller_pool_pods",
			"Unassigned pods of each pool by state: ready (can be claimed) or unready (cannot, yet or at all).", append(labels, "state"), nil),
		queued: prometheus.NewDesc("skipper_controller_pool_waiting_callers",
			"Callers that wait for a pod of the pool at this replica; above 0 for long means that the pool is too small.", labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *PoolCollector) Describe(to chan<- *prometheus.Desc) {
	to <- c.stock
	to <- c.queued
}

// Collect implements prometheus.Collector.
func (c *PoolCollector) Collect(to chan<- prometheus.Metric) {
	waiting := c.waiting()
	for _, name := range c.pods.Pools() {
		ready, unready, _ := stock(c.pods, name)
		for state, n := range map[string]int{"ready": ready, "unready": unready} {
			to <- prometheus.MustNewConstMetric(c.stock, prometheus.GaugeValue, float64(n), name.Namespace, name.Deployment, state)
		}
		to <- prometheus.MustNewConstMetric(c.queued, prometheus.GaugeValue, float64(waiting[name]), name.Namespace, name.Deployment)
	}
}
