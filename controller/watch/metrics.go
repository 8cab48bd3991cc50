package watch

import (
	"sync/atomic"
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
	last   map[string]*atomic.Int64 // Unix nanoseconds of the newest event by resource; resyncs are none
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
	m.initialise(r)
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

// initialise has everything stand at 0 from the start.
func (m *metrics) initialise(r prometheus.Registerer) {
	m.last = map[string]*atomic.Int64{}
	for _, resource := range []string{functionPods, ownPods, replicaSets} {
		for _, kind := range []string{kindAdd, kindUpdate, kindDelete, kindResync} {
			m.events.WithLabelValues(resource, kind)
		}
		for _, kind := range []string{kindAdd, kindDelete} {
			m.lag.WithLabelValues(resource, kind)
		}
		last := &atomic.Int64{}
		last.Store(time.Now().UnixNano())
		m.last[resource] = last
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "skipper_controller_informer_last_event_age_seconds",
			Help:        "Time since informers showed the newest event, resyncs apart, or since the start. In a quiet cluster it grows without anything being wrong: see skipper_controller_view_age_seconds.",
			ConstLabels: prometheus.Labels{"resource": resource},
		}, func() float64 { return time.Since(time.Unix(0, last.Load())).Seconds() }))
	}
}

func (m *metrics) counted(resource, kind string) {
	if last := m.last[resource]; last != nil && kind != kindResync {
		last.Store(time.Now().UnixNano())
	}
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
