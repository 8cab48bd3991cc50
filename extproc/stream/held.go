package stream

import (
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"skipper/proto/reason"

	"skipper/extproc/header"
	"skipper/extproc/hold"
	"skipper/extproc/metrics"
	"skipper/extproc/table"
	"skipper/extproc/wire"
)

// envoyMargin is how much longer than the wait Envoy is asked to be patient; it
// must stay below the margin of max_message_timeout in Envoy's configuration (5 s).
const envoyMargin = 2 * time.Second

// verdict is what a wait came to.
type verdict uint8

const (
	again     verdict = iota // look again
	granted                  // the grant is held
	exhausted                // the controller named an instance that was tried
	denied                   // the refusal says why
	expired                  // the time is up
	left                     // the client is gone
)

// wait is how the metrics call it; an instance that was tried is an instance.
func (v verdict) wait() metrics.Wait {
	switch v {
	case expired:
		return metrics.TimedOut
	case left:
		return metrics.Left
	case denied:
		return metrics.Denied
	}
	return metrics.Granted
}

// outcome is the end of a wait, or of one turn of it.
type outcome struct {
	verdict verdict
	grant   grant
	// instance is what the controller named, where it is not granted.
	instance *table.Instance
	refusal  *refusal
}

// wait is a request that must wait for an instance.
type wait struct {
	function *header.Function
	start    time.Time
	length   time.Duration
	// tried are instances that are of no use to the request.
	tried []*table.Instance
	// over is closed when the request is over; nil on its first stream, which
	// sees that itself.
	over <-chan struct{}
	// span is nil where none is traced.
	span trace.Span

	timer  *time.Timer
	ticket *hold.Ticket
}

func (w *wait) deadline() time.Time { return w.start.Add(w.length) }

func (w *wait) exclude() []string {
	out := make([]string, 0, len(w.tried))
	for _, i := range w.tried {
		out = append(out, i.Name)
	}
	return out
}

func (w *wait) hasTried(uid string) bool {
	return slices.ContainsFunc(w.tried, func(i *table.Instance) bool { return i.UID == uid })
}

// cold answers a request that must wait, at most until start + length.
func (x *session) cold(f *header.Function, start time.Time, length time.Duration, span trace.Span) *wire.Reply {
	o := x.hold(&wait{function: f, start: start, length: length, span: span})
	endSpan(span, o)
	switch o.verdict {
	case granted:
		return x.sent(metrics.Cold, f, start, length, o.grant)
	case left:
		return x.abandoned()
	}
	x.server.opts.Logger.Debug("request refused", zap.String("function", f.Name), zap.String("reason", string(o.refusal.reason)), zap.String("message", o.refusal.message))
	return x.refuse(o.refusal, f)
}

// hold waits in the hall. The verdict is granted, exhausted, denied or left.
func (x *session) hold(w *wait) outcome {
	s := x.server
	s.held.enter()
	defer s.held.leave()
	ticket, err := s.opts.Hall.EnterTraced(w.span, w.function, w.deadline(), w.exclude()...)
	if full := (*hold.FullError)(nil); errors.As(err, &full) {
		return outcome{verdict: denied, refusal: fullRefusal(full)}
	}
	w.ticket = ticket
	begun := time.Now()
	w.timer = time.NewTimer(time.Until(w.deadline()))
	defer w.timer.Stop()
	o := x.turns(w)
	last := w.ticket.Leave()
	s.opts.Metrics.Waited(o.verdict.wait(), time.Since(begun))
	if o.verdict == expired {
		return outcome{verdict: denied, refusal: timeoutRefusal(w.function.Name, w.length, last)}
	}
	return o
}

// turns waits for one result after the other, until one of them is of use. The
// place in the hall is kept.
func (x *session) turns(w *wait) outcome {
	s := x.server
	for spoilt := 0; ; {
		if g, ok := s.fromTable(w.function, uids(w.tried), time.Now()); ok { // it may have been filled just before we stood in line
			return outcome{verdict: granted, grant: g}
		}
		if !x.moreTime(w.deadline()) {
			return outcome{verdict: left} // the next receive says how the stream ended
		}
		o := x.await(w)
		if o.instance != nil {
			spoilt++
		}
		switch {
		case o.verdict != again:
			return o
		case spoilt >= s.opts.Attempts:
			return outcome{verdict: denied, refusal: &refusal{reason: reason.HoldTimeout, message: "instances of " + w.function.Name + " keep vanishing: try again", again: againLater}}
		}
		w.ticket.Again(w.exclude()...)
	}
}

// moreTime asks Envoy, once per stream, to wait until the deadline, and begins to
// look for the end of the stream. It is false if the stream is at its end.
func (x *session) moreTime(deadline time.Time) bool {
	if x.beside != nil {
		return true
	}
	if err := x.send(wire.MoreTime(max(0, time.Until(deadline)) + envoyMargin)); err != nil {
		return false
	}
	x.receiveBeside()
	return true
}

func (x *session) await(w *wait) outcome {
	select {
	case r := <-w.ticket.Result:
		return x.server.take(w, r)
	case err := <-x.beside:
		x.beside <- err // for receive; it has room for one
		return outcome{verdict: left}
	case <-w.over:
		return outcome{verdict: left}
	case <-w.timer.C:
		return outcome{verdict: expired}
	case <-x.server.hurry:
		return outcome{verdict: denied, refusal: stopping()}
	}
}

// take turns the result of a wait into a grant. The table has the last word, but
// for instances that it does not hand out: those of oneshots, and any while it is
// too old - then what the controller has just said is used.
func (s *Server) take(w *wait, r hold.Result) outcome {
	if r.Err != nil {
		return outcome{verdict: denied, refusal: controllerRefusal(r.Err)}
	}
	if g, ok := s.fromTable(w.function, uids(w.tried), time.Now()); ok {
		return outcome{verdict: granted, grant: g}
	}
	oneshot, stale := w.function.Key.Oneshot, s.opts.Table.Stale()
	switch {
	case r.Instance == nil:
		return outcome{verdict: again}
	case w.hasTried(r.Instance.UID) && !oneshot:
		return outcome{verdict: exhausted, instance: r.Instance}
	case w.hasTried(r.Instance.UID) || !oneshot && !stale:
		return outcome{verdict: again, instance: r.Instance}
	}
	return outcome{verdict: granted, grant: grant{lease: s.opts.Table.Hold(w.function, r.Instance), named: true}}
}
