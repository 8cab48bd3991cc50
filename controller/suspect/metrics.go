package suspect

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	failures *prometheus.CounterVec
	looks    *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) metrics {
	m := metrics{
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_instance_failures_total",
			Help: "Failed attempts that routers reported to this replica, by whether they were at an instance of the function or at a stranger (mostly a pod that has left).",
		}, []string{"at"}),
		looks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_suspect_looks_total",
			Help: "Looks at instances that failed, by what the API server says of the pod. Many well ones mean that the network between gateways and pods is ill.",
		}, []string{"pod"}),
	}
	for _, at := range []string{instance, stranger} {
		m.failures.WithLabelValues(at)
	}
	for _, v := range []verdict{gone, ending, unready, well, left, unread, crowded} {
		m.looks.WithLabelValues(v)
	}
	r.MustRegister(m.failures, m.looks)
	return m
}

func (m metrics) failed(own bool, n uint32) {
	at := stranger
	if own {
		at = instance
	}
	m.failures.WithLabelValues(at).Add(float64(n))
}
