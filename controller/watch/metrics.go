package watch

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Values of the metrics' label event.
const (
	kindAdd    = "add"
	kindUpdate = "update"
	kindDelete = "delete"
	kindResync = "resync"
)

// metaObject is what an event's lag is computed from.
type metaObject interface {
	GetResourceVersion() string
	GetUID() types.UID
	GetCreationTimestamp() metav1.Time
	GetDeletionTimestamp() *metav1.Time
	GetDeletionGracePeriodSeconds() *int64
}

type metrics struct {
	events *prometheus.CounterVec
	lag    *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer, frozen func() bool) *metrics {
	m := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_informer_events_total",
			Help: "Events that informers showed, by what they are of and what happened.",
		}, []string{"resource", "event"}),
		lag: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "skipper_controller_informer_event_lag_seconds",
			Help:    "How late informers show events: additions since creation (the initial list apart), deletions since they were asked for. Kubernetes keeps those times in whole seconds.",
			Buckets: prometheus.ExponentialBuckets(0.25, 2, 12),
		}, []string{"resource", "event"}),
	}
	r.MustRegister(m.events, m.lag, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "skipper_controller_informer_frozen",
		Help: "1 while the watch of function pods does not move although the API server does; this replica serves no xDS then.",
	}, func() float64 {
		if frozen() {
			return 1
		}
		return 0
	}))
	return m
}

func (m *metrics) counted(resource, kind string) {
	m.events.WithLabelValues(resource, kind).Inc()
}

func (m *metrics) added(resource string, o metaObject, initial bool, now time.Time) {
	m.counted(resource, kindAdd)
	if !initial {
		m.observe(resource, kindAdd, now.Sub(o.GetCreationTimestamp().Time))
	}
}

// deleted observes only: what vanished without a deletion timestamp, as
// ReplicaSets and force-deleted pods do, has no time to count from.
func (m *metrics) deleted(resource string, o metaObject, now time.Time) {
	at := o.GetDeletionTimestamp()
	if at == nil {
		return
	}
	asked := at.Time
	if grace := o.GetDeletionGracePeriodSeconds(); grace != nil {
		asked = asked.Add(-time.Duration(*grace) * time.Second)
	}
	m.observe(resource, kindDelete, now.Sub(asked))
}

// observe takes the difference of two clocks for zero where it is below.
func (m *metrics) observe(resource, kind string, lag time.Duration) {
	m.lag.WithLabelValues(resource, kind).Observe(max(lag, 0).Seconds())
}
