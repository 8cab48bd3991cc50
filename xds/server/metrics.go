package server

import "github.com/prometheus/client_golang/prometheus"

// metrics of one server; the label type is one of cluster, endpoint, instances.
type metrics struct {
	streams   prometheus.Gauge
	closed    *prometheus.CounterVec // by reason
	subs      *prometheus.GaugeVec
	resources *prometheus.GaugeVec
	pushes    *prometheus.CounterVec
	acks      *prometheus.CounterVec
	nacks     *prometheus.CounterVec
	invalid   *prometheus.CounterVec
}

// Values of the label type.
const (
	labelCluster   = "cluster"
	labelEndpoint  = "endpoint"
	labelInstances = "instances"
)

// Reasons for which the server closes a stream.
const (
	closedStuck   = "stuck"
	closedRefused = "refused"
	closedHeld    = "held"
)

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "skipper_controller_xds_streams", Help: "Open xDS streams, of Envoys and extprocs.",
		}),
		closed: counter("streams_closed_total", "Streams that the server closed: stuck (no answer in time), refused (bad request), held (this replica stopped serving).", "reason"),
		subs: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "skipper_controller_xds_subscribers", Help: "Streams that are subscribed to the type.",
		}, []string{"type"}),
		resources: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "skipper_controller_xds_resources", Help: "Resources held for subscribers.",
		}, []string{"type"}),
		pushes:  counter("pushes_total", "Responses sent.", "type"),
		acks:    counter("acks_total", "Responses that a client accepted.", "type"),
		nacks:   counter("nacks_total", "Responses that a client rejected; it goes on with what it had, and the log has its words.", "type"),
		invalid: counter("invalid_total", "Resources left out because they cannot be published; the log says why.", "type"),
	}
	for _, reason := range []string{closedStuck, closedRefused, closedHeld} {
		m.closed.WithLabelValues(reason)
	}
	for _, label := range []string{labelCluster, labelEndpoint, labelInstances} {
		for _, vec := range []*prometheus.CounterVec{m.pushes, m.acks, m.nacks, m.invalid} {
			vec.WithLabelValues(label)
		}
		for _, vec := range []*prometheus.GaugeVec{m.subs, m.resources} {
			vec.WithLabelValues(label)
		}
	}
	if r != nil {
		r.MustRegister(m.streams, m.closed, m.subs, m.resources, m.pushes, m.acks, m.nacks, m.invalid)
	}
	return m
}

func counter(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "skipper_controller_xds_" + name, Help: help}, []string{label})
}
