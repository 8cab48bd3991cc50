// Package metrics counts what extproc does, as skipper_extproc_*. What every
// request counts is kept apart by cores, see requests; the rest is resolved to
// one counter beforehand. Labels come from closed lists, never a tenant, a
// function or a pod, and every series is there from the start.
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

// Pick is who named the instance that a request was sent to.
type Pick uint8

// The sources of instances.
const (
	FromTable Pick = iota
	FromController
	picks
)

// Wait is how a request's wait for an instance ended.
type Wait uint8

// The ends of waits.
const (
	Granted  Wait = iota // with an instance
	Denied               // with the controller's refusal, or because the process stops
	TimedOut             // without either within the time
	Left                 // the client was gone before
	waits
)

var (
	outcomeLabels = [outcomes]string{"warm", "cold", "health", "refused", "abandoned", "silent", "resent"}
	causeLabels   = [causes]string{"unknown", "failed", "lost_record"}
	endLabels     = [ends]string{"lost", "over", "turned"}
	pickLabels    = [picks]string{"table", "controller"}
	waitLabels    = [waits]string{"granted", "denied", "timed_out", "left"}
)

// Metrics of one process. Safe for concurrent use.
type Metrics struct {
	requests *requests
	refusals *prometheus.CounterVec
	waited   [waits]prometheus.Observer

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
		requests:   newRequests(cores()),
		refusals:   vec("refusals_total", "Requests answered by extproc itself, by x-skipper-reason.", "reason"),
		instances:  vec("get_instance_total", "Questions to the controller for an instance, by gRPC code.", "code"),
		heartbeats: vec("heartbeats_total", "Heartbeat messages to the controller, by gRPC code.", "code"),
		releases:   vec("releases_total", "Oneshot instances given back: released, given_up after retries, or dropped because too many wait.", "outcome"),
		instanceSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name("get_instance_seconds"), Help: "Duration of questions to the controller for an instance.",
			Buckets: []float64{.005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30},
		}),
	}
	m.newPasses(r)
	m.newWaits(r)
	m.startAtZero()
	r.MustRegister(m.requests, m.refusals, m.instances, m.heartbeats, m.releases, m.instanceSeconds)
	return m
}

// startAtZero makes every series be there before it counts, so that a rate over
// the first event is one.
func (m *Metrics) startAtZero() {
	for _, r := range []reason.Reason{
		reason.HeaderMissing, reason.HeaderRepeated, reason.HeaderInvalid, reason.HeaderTooLarge,
		reason.FunctionUnsigned, reason.TokenInvalid, reason.TokenExpired, reason.FunctionNotAllowed,
		reason.NamespaceNotManaged, reason.DeploymentNotFound, reason.HoldQueueFull, reason.LimitReached, reason.HoldTimeout,
		reason.AssignRejected, reason.ControllerUnavailable, reason.ShuttingDown, reason.NoInstance, reason.ConnectFailed, reason.Internal,
	} {
		m.refusals.WithLabelValues(string(r))
	}
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		m.instances.WithLabelValues(c.String())
		m.heartbeats.WithLabelValues(c.String())
	}
	for _, o := range []string{released, givenUp, dropped} {
		m.releases.WithLabelValues(o)
	}
}

// Outcomes of releases.
const (
	released = "released"
	givenUp  = "given_up"
	dropped  = "dropped"
)

func (m *Metrics) newWaits(r prometheus.Registerer) {
	waited := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name("hold_seconds"), Help: "How long requests waited for an instance, by how that ended: granted, denied (by the controller, or because the process stops), timed_out, or left (the client was gone).",
		Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30},
	}, []string{"outcome"})
	for w, label := range waitLabels {
		m.waited[w] = waited.WithLabelValues(label)
	}
	r.MustRegister(waited)
}

func (m *Metrics) newPasses(r prometheus.Registerer) {
	again := vec("second_passes_total", "Streams by which Envoy asked for an instance once more, by cause: unknown (to Envoy), failed (it was tried) or lost_record (the request is not known here).", "cause")
	for c, label := range causeLabels {
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
func (m *Metrics) Decided(o Outcome) { m.requests.shard().outcomes[o].Add(1) }

// Sent counts a request that was sent to an instance, and how long that took; o
// is Warm or Cold.
func (m *Metrics) Sent(o Outcome, p Pick, took time.Duration) {
	s := m.requests.shard()
	s.outcomes[o].Add(1)
	s.picks[p].Add(1)
	s.decision[o].observe(took)
}

// Picked counts an instance that a request was sent to in a later pass.
func (m *Metrics) Picked(p Pick) { m.requests.shard().picks[p].Add(1) }

// Closed ends what Sent began.
func (m *Metrics) Closed() { m.requests.shard().closed.Add(1) }

// Ended counts how a stream ended.
func (m *Metrics) Ended(e End) { m.requests.shard().ends[e].Add(1) }

// Waited notes how long a request waited for an instance.
func (m *Metrics) Waited(w Wait, took time.Duration) { m.waited[w].Observe(took.Seconds()) }

// Again counts a stream by which Envoy asked for an instance once more.
func (m *Metrics) Again(c Cause) { m.again[c].Inc() }

// Quarantined counts an instance that came into quarantine.
func (m *Metrics) Quarantined() { m.quarantines.Inc() }

// Passes notes how often a request was sent to an instance, after a second pass.
func (m *Metrics) Passes(n int) { m.passes.Observe(float64(n)) }

// Refused counts a refusal; r is from the closed list.
func (m *Metrics) Refused(r reason.Reason) {
	m.Decided(Refused)
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
func (m *Metrics) Released() { m.releases.WithLabelValues(released).Inc() }

// GivenUp counts a release that did not succeed in time.
func (m *Metrics) GivenUp() { m.releases.WithLabelValues(givenUp).Inc() }

// Dropped counts a release for which there was no room.
func (m *Metrics) Dropped() { m.releases.WithLabelValues(dropped).Inc() }
