package pool

import "github.com/prometheus/client_golang/prometheus"

// Collector shows how full the pools are and how many pods are in each state.
// It counts when it is asked.
type Collector struct {
	view                *View
	unassigned, byState *prometheus.Desc
}

// NewCollector returns a collector over v, to be registered.
func NewCollector(v *View) *Collector {
	return &Collector{
		view: v,
		unassigned: prometheus.NewDesc("skipper_controller_unassigned_pods",
			"Unclaimed pods of each pool; only ready ones can be claimed.", []string{"namespace", "deployment", "ready"}, nil),
		byState: prometheus.NewDesc("skipper_controller_pods",
			"Function pods in each state.", []string{"state"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.unassigned
	ch <- c.byState
}

// Collect implements prometheus.Collector. A pool that has run empty is still
// shown, with zeros: that is when its number matters.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	states, pools := c.view.count()
	for s, n := range states {
		ch <- prometheus.MustNewConstMetric(c.byState, prometheus.GaugeValue, float64(n), State(s).String())
	}
	for k, n := range pools {
		ch <- prometheus.MustNewConstMetric(c.unassigned, prometheus.GaugeValue, float64(n.ready), k.namespace, k.deployment, "true")
		ch <- prometheus.MustNewConstMetric(c.unassigned, prometheus.GaugeValue, float64(n.unready), k.namespace, k.deployment, "false")
	}
}

type poolCount struct{ ready, unready int }

// count goes over all pods: milliseconds for 50,000.
func (v *View) count() (states [Dead + 1]int, pools map[poolKey]poolCount) {
	v.mu.Lock()
	defer v.mu.Unlock()
	pools = make(map[poolKey]poolCount, len(v.known))
	for k := range v.known {
		pools[k] = poolCount{}
	}
	for _, e := range v.pods {
		s := e.shown.State()
		states[s]++
		if s != Unassigned {
			continue
		}
		k := poolKey{e.shown.Namespace, e.shown.Deployment}
		n := pools[k]
		if e.shown.Ready {
			n.ready++
		} else {
			n.unready++
		}
		pools[k] = n
	}
	return states, pools
}
