package withdraw

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skipper/controller/fence"
)

type metrics struct {
	took    prometheus.Histogram
	calls   *prometheus.CounterVec
	refused *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer, t *Tracker) *metrics {
	m := &metrics{
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "skipper_controller_withdrawals_acknowledged_seconds",
			Help:    "Time from a pod's leaving routing until every subscriber of every replica was known to have heard of it.",
			Buckets: prometheus.ExponentialBuckets(0.01, 3, 11),
		}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_withdrawals_calls_total",
			Help: "Calls to other replicas about withdrawals by outcome. One that does not answer holds up drains and addresses until it leaves the ring.",
		}, []string{"outcome"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_fence_refusals_total",
			Help: "Free pods whose address was not to be used when they were first looked at: withdrawn (a former owner may still be in some table), owned (another live pod has it), unknown (an extproc that was there before this controller is away).",
		}, []string{"cause"}),
	}
	for _, cause := range []string{fence.CauseWithdrawn, fence.CauseOwned, fence.CauseUnknown} {
		m.refused.WithLabelValues(cause)
	}
	for _, outcome := range []string{"answered", "failed"} {
		m.calls.WithLabelValues(outcome)
	}
	r.MustRegister(m.took, m.calls, m.refused,
		t.gauge("withdrawals_open", "Pods that have left routing and that some replica or extproc may not know of yet.", func(b *book) float64 {
			return float64(b.countOpen())
		}),
		t.gauge("withdrawals_oldest_seconds", "Age of the oldest of them.", func(b *book) float64 {
			return b.oldest(time.Now()).Seconds()
		}),
		t.gauge("withdrawals_lost_extprocs", "Extprocs that went away without goodbye and whose tables have not expired.", func(b *book) float64 {
			return float64(len(b.lost))
		}),
		t.gauge("fence_blocked_pods", "Free pods that wait because of their address.", func(b *book) float64 {
			return float64(len(b.blocked))
		}))
	return m
}

func (t *Tracker) gauge(name, help string, of func(*book) float64) prometheus.GaugeFunc {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "skipper_controller_" + name, Help: help}, func() float64 {
		t.mu.Lock()
		defer t.mu.Unlock()
		return of(t.book)
	})
}

func (b *book) countOpen() (n int) {
	for _, r := range b.records {
		if !r.closed {
			n++
		}
	}
	return n
}

func (b *book) oldest(now time.Time) (age time.Duration) {
	for _, r := range b.records {
		if !r.closed {
			age = max(age, now.Sub(r.since))
		}
	}
	return age
}
