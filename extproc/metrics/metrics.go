// Package metrics counts what extproc does, as skipper_extproc_*. Everything
// that the request path touches is resolved to one counter beforehand. Labels
// come from closed lists: never a tenant, a function or a pod.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"skipper/proto/reason"
)

// Outcome is what became of a request.
type Outcome uint8

// The outcomes of a stream.
const (
	Warm      Outcome = iota // sent to an instance from the table
	Cold                     // sent to an instance after a wait
	Health                   // answered as a health check
	Refused                  // answered with an x-skipper-reason
	Abandoned                // the client left during the wait
	Silent                   // the stream ended before it named a request
	Resent                   // sent once more, on a later stream of the request
	outcomes
)

// Cause is why Envoy asked again for an instance.
type Cause uint8

// The causes of a further pass.
const (
	Unknown    Cause = iota // Envoy did not know the instance
	Failed                  // the instance was tried and failed
	LostRecord              // the request is not known here
	causes
)

// End is how a stream ended.
type End uint8

// The ends of a stream.
const (
	Lost   End = iota // the stream broke: the request may still be in progress
	Over              // Envoy said that the request is over
	Turned            // left to Envoy by a process that stops
	ends
)

// Metrics of one process. Safe for concurrent use.
type Metrics struct {
	streams  [outcomes]prometheus.Counter
	ends     [ends]prometheus.Counter
	refusals *prometheus.CounterVec
	decision [2]prometheus.Observer
	open     prometheus.Gauge

	instances       *prometheus.CounterVec
	instanceSeconds prometheus.Histogram
	heartbeats      *prometheus.CounterVec
	releases        *prometheus.CounterVec

	again       [causes]prometheus.Counter
	quarantines prometheus.Counter
	passes      prometheus.Histogram
}

// Sources are numbers that are read when metrics are gathered.
type Sources struct {
	// Waiting is the number of requests that wait for an instance.
	Waiting func() int
	// Functions is the number of functions in the table.
	Functions func() int
	// TableAge is how long ago the table was in step with a controller.
	TableAge func() time.Duration
}

// New registers all metrics with r; it panics if one is registered already.
func New(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		refusals:   vec("refusals_total", "Requests answered by extproc itself, by x-skipper-reason.", "reason"),
		open:       prometheus.NewGauge(prometheus.GaugeOpts{Name: name("in_flight_requests"), Help: "Requests in progress on an instance, by open streams."}),
		instances:  vec("get_instance_total", "Questions to the controller for an instance, by gRPC code.", "code"),
		heartbeats: vec("heartbeats_total", "Heartbeat messages to the controller, by gRPC code.", "code"),
		releases:   vec("releases_total", "Oneshot instances given back: released, given_up after retries, or dropped because too many wait.", "outcome"),
		instanceSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name("get_instance_seconds"), Help: "Duration of questions to the controller for an instance.",
			Buckets: []float64{.005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30},
		}),
	}
	streams := vec("streams_total", "Streams by what became of the request: one per HTTP request, and one more for each further pass (resent, if it was sent to an instance).", "outcome")
	for o, label := range []string{"warm", "cold", "health", "refused", "abandoned", "silent", "resent"} {
		m.streams[o] = streams.WithLabelValues(label)
	}
	ended := vec("stream_ends_total", "Ended streams by how they ended: over, lost (the count is kept as a lease) or turned (left to Envoy by a process that stops).", "end")
	for e, label := range []string{"lost", "over", "turned"} {
		m.ends[e] = ended.WithLabelValues(label)
	}
	decision := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name("decision_seconds"), Help: "From the request headers to the answer that names an instance, warm (from the table) or cold (after a wait).",
		Buckets: []float64{.000001, .000002, .000005, .00001, .0001, .001, .01, .05, .1, .2, .5, 1, 2, 5, 10, 30},
	}, []string{"path"})
	m.decision = [2]prometheus.Observer{decision.WithLabelValues("warm"), decision.WithLabelValues("cold")}
	m.newPasses(r)
	r.MustRegister(m.refusals, m.open, m.instances, m.heartbeats, m.releases, m.instanceSeconds, streams, ended, decision)
	return m
}

func (m *Metrics) newPasses(r prometheus.Registerer) {
	again := vec("second_passes_total", "Streams by which Envoy asked for an instance once more, by cause: unknown (to Envoy), failed (it was tried) or lost_record (the request is not known here).", "cause")
	for c, label := range []string{"unknown", "failed", "lost_record"} {
		m.again[c] = again.WithLabelValues(label)
	}
	m.quarantines = prometheus.NewCounter(prometheus.CounterOpts{Name: name("quarantines_total"), Help: "Instances that came into quarantine because requests did not reach them."})
	m.passes = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: name("request_passes"), Help: "How often a request was sent to an instance, of requests that Envoy asked for more than once.",
		Buckets: []float64{1, 2, 3, 4, 5, 6, 10, 20},
	})
	r.MustRegister(again, m.quarantines, m.passes)
}

// Watch registers gauges with r that read from s.
func Watch(r prometheus.Registerer, s Sources) {
	gauge := func(n, help string, f func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name(n), Help: help}, f))
	}
	gauge("hold_queue_requests", "Requests that wait for an instance.", func() float64 { return float64(s.Waiting()) })
	gauge("table_functions", "Functions in the instance table.", func() float64 { return float64(s.Functions()) })
	gauge("table_age_seconds", "Time since the instance table was known to be in step with a controller.", func() float64 { return s.TableAge().Seconds() })
}

func name(n string) string { return "skipper_extproc_" + n }

func vec(n, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name(n), Help: help}, []string{label})
}

// Decided counts what became of a request.
func (m *Metrics) Decided(o Outcome) { m.streams[o].Inc() }

// Sent counts a request that was sent to an instance, and how long that took.
func (m *Metrics) Sent(o Outcome, took time.Duration) {
	m.streams[o].Inc()
	m.decision[o].Observe(took.Seconds())
	m.open.Inc()
}

// Closed ends what Sent began.
func (m *Metrics) Closed() { m.open.Dec() }

// Ended counts how a stream ended.
func (m *Metrics) Ended(e End) { m.ends[e].Inc() }

// Again counts a stream by which Envoy asked for an instance once more.
func (m *Metrics) Again(c Cause) { m.again[c].Inc() }

// Quarantined counts an instance that came into quarantine.
func (m *Metrics) Quarantined() { m.quarantines.Inc() }

// Passes notes how often a request was sent to an instance, after a second pass.
func (m *Metrics) Passes(n int) { m.passes.Observe(float64(n)) }

// Refused counts a refusal; r is from the closed list.
func (m *Metrics) Refused(r reason.Reason) {
	m.streams[Refused].Inc()
	m.refusals.WithLabelValues(string(r)).Inc()
}

// GotInstance counts a question to the controller.
func (m *Metrics) GotInstance(c codes.Code, took time.Duration) {
	m.instances.WithLabelValues(c.String()).Inc()
	m.instanceSeconds.Observe(took.Seconds())
}

// Beat counts a heartbeat message.
func (m *Metrics) Beat(c codes.Code) { m.heartbeats.WithLabelValues(c.String()).Inc() }

// Released counts a oneshot instance that was given back.
func (m *Metrics) Released() { m.releases.WithLabelValues("released").Inc() }

// GivenUp counts a release that did not succeed in time.
func (m *Metrics) GivenUp() { m.releases.WithLabelValues("given_up").Inc() }

// Dropped counts a release for which there was no room.
func (m *Metrics) Dropped() { m.releases.WithLabelValues("dropped").Inc() }
