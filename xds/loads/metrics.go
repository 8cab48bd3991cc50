package loads

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	envoys  prometheus.Gauge
	reports prometheus.Counter
	refused *prometheus.CounterVec
}

// Values of the label reason of refused streams.
const (
	refusedHeld    = "held"
	refusedTooMany = "too_many"
	refusedInvalid = "invalid"
	refusedSilent  = "silent"
)

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		envoys: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "skipper_controller_load_envoys",
			Help: "Load reporting streams of Envoys that are connected to this replica.",
		}),
		reports: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skipper_controller_load_reports_total",
			Help: "Load reports taken from Envoys: one a second of each.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_load_refused_streams_total",
			Help: "Load reporting streams that were refused or ended by the controller: held (it is stopping), too_many, invalid (a message that cannot be taken), silent (no report for long).",
		}, []string{"reason"}),
	}
	for _, reason := range []string{refusedHeld, refusedTooMany, refusedInvalid, refusedSilent} {
		m.refused.WithLabelValues(reason)
	}
	if r != nil {
		r.MustRegister(m.envoys, m.reports, m.refused)
	}
	return m
}
