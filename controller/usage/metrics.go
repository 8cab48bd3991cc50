package usage

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	lists *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer, r *Reader) metrics {
	m := metrics{lists: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "skipper_controller_pod_metrics_lists_total",
		Help: "Lists of the metrics API, one for each function namespace and interval, by outcome.",
	}, []string{"outcome"})}
	for _, outcome := range []string{"ok", "failed"} {
		m.lists.WithLabelValues(outcome)
	}
	registerer.MustRegister(m.lists,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skipper_controller_pod_metrics_available",
			Help: "1 while CPU and memory of all function namespaces are known from the metrics API, otherwise 0.",
		}, r.available),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skipper_controller_pod_metrics_age_seconds",
			Help: "Age of the oldest list of the metrics API that is in use; 0 while there is none.",
		}, r.age),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skipper_controller_pod_metrics_instances",
			Help: "Instances whose CPU and memory are known.",
		}, r.known),
	)
	return m
}

func (r *Reader) available() float64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	now := time.Now()
	for _, n := range r.namespaces {
		if n.failed != "" || now.Sub(n.readAt) > r.oldest() {
			return 0
		}
	}
	return 1
}

func (r *Reader) age() float64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var oldest time.Duration
	now := time.Now()
	for _, n := range r.namespaces {
		if !n.readAt.IsZero() {
			oldest = max(oldest, now.Sub(n.readAt))
		}
	}
	return oldest.Seconds()
}

func (r *Reader) known() float64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	total := 0
	for _, n := range r.namespaces {
		total += len(n.pods)
	}
	return float64(total)
}
