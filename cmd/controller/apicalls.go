package main

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Verbs of calls to the API server, as Kubernetes names them; reads of one
// object and of lists are one.
const (
	verbRead   = "read"
	verbWatch  = "watch"
	verbCreate = "create"
	verbUpdate = "update"
	verbPatch  = "patch"
	verbDelete = "delete"
	verbOther  = "other"
)

// apiCalls counts the calls to the API server. Safe for concurrent use.
type apiCalls struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newAPICalls() *apiCalls {
	a := &apiCalls{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_api_requests_total",
			Help: "Calls to the API server by verb and status code; code is error where no answer came.",
		}, []string{"verb", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "skipper_controller_api_request_seconds",
			Help:    "Time until the API server's answer began, by verb; waiting for --kubeconfig-qps not counted.",
			Buckets: prometheus.ExponentialBuckets(0.002, 3, 9),
		}, []string{"verb"}),
	}
	for _, verb := range []string{verbRead, verbWatch, verbCreate, verbUpdate, verbPatch, verbDelete} {
		a.requests.WithLabelValues(verb, strconv.Itoa(http.StatusOK))
		a.seconds.WithLabelValues(verb)
	}
	return a
}

// wrap is a transport.WrapperFunc.
func (a *apiCalls) wrap(next http.RoundTripper) http.RoundTripper { return counted{a, next} }

// counted is a transport whose calls are counted.
type counted struct {
	*apiCalls
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	verb, start := verbOf(r), time.Now()
	answer, err := c.next.RoundTrip(r)
	c.seconds.WithLabelValues(verb).Observe(time.Since(start).Seconds())
	code := "error"
	if err == nil {
		code = strconv.Itoa(answer.StatusCode)
	}
	c.requests.WithLabelValues(verb, code).Inc()
	return answer, err
}

// WrappedRoundTripper lets client-go reach the transport below.
func (c counted) WrappedRoundTripper() http.RoundTripper { return c.next }

func verbOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet:
		if w := r.URL.Query().Get("watch"); w == "true" || w == "1" {
			return verbWatch
		}
		return verbRead
	case http.MethodPost:
		return verbCreate
	case http.MethodPut:
		return verbUpdate
	case http.MethodPatch:
		return verbPatch
	case http.MethodDelete:
		return verbDelete
	}
	return verbOther
}
