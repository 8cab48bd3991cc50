package inflight

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct{ shares *prometheus.CounterVec }

// Values of the label outcome of shares.
const (
	sent    = "sent"
	failed  = "failed"
	skipped = "skipped"
)

func newMetrics(r prometheus.Registerer, s *Store) *metrics {
	m := &metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "skipper_controller_load_shares_total",
		Help: "Messages of load for other replicas by what became of them: sent, failed, or skipped because the replica had not taken the one before.",
	}, []string{"outcome"})}
	for _, o := range []string{sent, failed, skipped} {
		m.shares.WithLabelValues(o)
	}
	r.MustRegister(m.shares,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skipper_controller_load_known_envoys",
			Help: "Envoys whose load counts: connected to any replica, or lost for less than the drain timeout.",
		}, func() float64 { return float64(len(s.Nodes(time.Now()))) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skipper_controller_load_report_age_seconds",
			Help: "Age of the newest word about the Envoy that was heard longest ago; above a few seconds an Envoy is lost, and drains wait for it.",
		}, func() float64 { age, _ := s.state(time.Now()); return age.Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skipper_controller_load_unknown_addresses",
			Help: "Endpoints that Envoys of this replica name in their newest reports and no pod has: for a moment those of pods that have just come or gone.",
		}, func() float64 { _, unknown := s.state(time.Now()); return float64(unknown) }),
	)
	return m
}
