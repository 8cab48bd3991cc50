package claim

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Stages of a cold start, for Metrics.Stage.
const (
	StageWait   = "wait"   // from the call until a pod is reserved
	StagePatch  = "patch"  // the claim's write
	StageAssign = "assign" // the assignment's POST
)

// Metrics of cold starts.
type Metrics struct {
	claims  *prometheus.CounterVec
	stages  *prometheus.HistogramVec
	waiting prometheus.Gauge
}

// NewMetrics registers the metrics with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_claims_total",
			Help: "Claim patches by what became of them; lost_race counts pods that another replica took first.",
		}, []string{"outcome"}),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "skipper_controller_cold_start_seconds",
			Help:    "Time that each stage of a cold start takes: waiting for a pod, writing the claim, the pod's answer to the assignment.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}, []string{"stage"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "skipper_controller_claim_waiting_callers",
			Help: "Callers that wait for a pod; above zero for long means that pools are too small.",
		}),
	}
	for o := Won; o <= Unclear; o++ {
		m.claims.WithLabelValues(o.String())
	}
	for _, stage := range []string{StageWait, StagePatch, StageAssign} {
		m.stages.WithLabelValues(stage)
	}
	r.MustRegister(m.claims, m.stages, m.waiting)
	return m
}

// Stage records how long a stage took.
func (m *Metrics) Stage(stage string, d time.Duration) {
	m.stages.WithLabelValues(stage).Observe(d.Seconds())
}
