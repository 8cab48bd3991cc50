package acquire

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	acquisitions *prometheus.CounterVec
	assignments  *prometheus.CounterVec
	waiting      prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		acquisitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_acquisitions_total",
			Help: "Pods asked for by what came of it: ok, or why there is none.",
		}, []string{"result"}),
		assignments: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_assignments_total",
			Help: "Assignments posted to pods; refused ones cost a pod each.",
		}, []string{"result"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "skipper_controller_waiting_callers",
			Help: "Callers that wait for an instance of a function.",
		}),
	}
	m.acquisitions.WithLabelValues("ok")
	for _, cause := range causeNames {
		m.acquisitions.WithLabelValues(cause)
	}
	for _, result := range []string{"accepted", "refused"} {
		m.assignments.WithLabelValues(result)
	}
	r.MustRegister(m.acquisitions, m.assignments, m.waiting)
	return m
}

func (m *metrics) acquired(err error) {
	result := "ok"
	var e *Error
	if errors.As(err, &e) {
		result = e.Cause.String()
	}
	m.acquisitions.WithLabelValues(result).Inc()
}

func (m *metrics) assigned(err error) {
	m.assignments.WithLabelValues(result(err)).Inc()
}

// result is the outcome of an assignment.
func result(err error) string {
	if err != nil {
		return "refused"
	}
	return "accepted"
}
