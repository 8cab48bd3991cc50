package forward

import "github.com/prometheus/client_golang/prometheus"

// Metrics of forwarding.
type Metrics struct {
	routes     *prometheus.CounterVec
	heartbeats *prometheus.CounterVec
	deaths     prometheus.Counter
}

// Values of the label method.
const (
	methodGetInstance = "GetInstance"
	methodScale       = "Scale"
)

// Values of the label outcome of heartbeats.
const (
	sent    = "sent"
	merged  = "merged"
	dropped = "dropped"
	failed  = "failed"
)

// NewMetrics registers the metrics with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		routes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_routed_calls_total",
			Help: "Cold GetInstance and Scale calls by method and where they went: next_owner and in_place_of_owner mean that an owner could not be reached.",
		}, []string{"method", "reason"}),
		heartbeats: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_forwarded_heartbeats_total",
			Help: "Messages of heartbeats for other replicas by what became of them: sent, merged with a newer one, dropped because the replica is too slow, failed.",
		}, []string{"outcome"}),
		deaths: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skipper_controller_silent_peers_total",
			Help: "Times that another replica fell silent with calls to answer.",
		}),
	}
	for _, o := range []string{sent, merged, dropped, failed} {
		m.heartbeats.WithLabelValues(o)
	}
	for _, method := range []string{methodGetInstance, methodScale} {
		for _, reason := range []Reason{Responsible, Forwarded, ToOwner, ToNext, InPlaceOf, NobodyElse, NobodyAtAll, NotServingYet} {
			m.routes.WithLabelValues(method, string(reason))
		}
	}
	r.MustRegister(m.routes, m.heartbeats, m.deaths)
	return m
}

func (m *Metrics) count(outcome string, n int) {
	m.heartbeats.WithLabelValues(outcome).Add(float64(n))
}
