package stream

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"skipper/proto/reason"

	"skipper/extproc/header"
	"skipper/extproc/hold"
	"skipper/extproc/metrics"
	"skipper/extproc/wire"
)

// envoyMargin is how much longer than the wait Envoy is asked to be patient; it
// must stay below the margin of max_message_timeout in Envoy's configuration (5 s).
const envoyMargin = 2 * time.Second

// verdict is what one turn in the hall came to.
type verdict uint8

const (
	again   verdict = iota // look again, from the beginning
	granted                // the lease is held
	denied                 // the refusal says why
	left                   // the client is gone
)

// wait is a request that must wait for an instance.
type wait struct {
	function *header.Function
	start    time.Time
	length   time.Duration
	timer    *time.Timer
}

func (w *wait) deadline() time.Time { return w.start.Add(w.length) }

// hold makes the request wait for an instance, at most until start + length.
func (x *session) hold(f *header.Function, start time.Time, length time.Duration) *wire.Reply {
	s := x.server
	s.held.enter()
	defer s.held.leave()
	w := &wait{function: f, start: start, length: length, timer: time.NewTimer(length)}
	defer w.timer.Stop()
	for range s.opts.Attempts {
		v, bad := x.turn(w)
		switch v {
		case granted:
			return x.sent(metrics.Cold, start)
		case left:
			s.opts.Metrics.Decided(metrics.Abandoned)
			return nil
		case denied:
			s.opts.Logger.Debug("request refused", zap.String("function", f.Name), zap.String("reason", string(bad.reason)), zap.String("message", bad.message))
			return x.refuse(bad)
		}
	}
	return x.refuse(&refusal{reason: reason.HoldTimeout, message: "instances of " + f.Name + " keep vanishing: try again", again: againLater})
}

// turn enters the hall once and waits.
func (x *session) turn(w *wait) (verdict, *refusal) {
	ticket, err := x.server.opts.Hall.Enter(w.function, w.deadline())
	if full := (*hold.FullError)(nil); errors.As(err, &full) {
		return denied, fullRefusal(full)
	}
	if x.fromTable(w.function) { // it may have been filled just before we entered
		_ = ticket.Leave()
		return granted, nil
	}
	if x.beside == nil {
		if err := x.send(wire.MoreTime(max(0, time.Until(w.deadline())) + envoyMargin)); err != nil {
			_ = ticket.Leave()
			return left, nil // the next receive says how the stream ended
		}
		x.receiveBeside()
	}
	return x.await(w, ticket)
}

func (x *session) await(w *wait, ticket *hold.Ticket) (verdict, *refusal) {
	select {
	case r := <-ticket.Result:
		_ = ticket.Leave()
		return x.take(w.function, r)
	case err := <-x.beside:
		x.beside <- err // for receive; it has room for one
		_ = ticket.Leave()
		return left, nil
	case <-w.timer.C:
		return denied, timeoutRefusal(w.function.Name, w.length, ticket.Leave())
	case <-x.server.hurry:
		_ = ticket.Leave()
		return denied, &refusal{reason: reason.ShuttingDown, message: "this router is stopping: send the request again", again: againSoon}
	}
}

// take turns the result of a wait into a lease. The table has the last word, but
// for instances that it does not hand out: those of oneshots, and any while it is
// too old - then what the controller has just said is used.
func (x *session) take(f *header.Function, r hold.Result) (verdict, *refusal) {
	if r.Err != nil {
		return denied, controllerRefusal(r.Err)
	}
	if x.fromTable(f) {
		return granted, nil
	}
	t := x.server.opts.Table
	named := f.Key.Oneshot || t.Stale()
	if r.Instance == nil || !named {
		return again, nil
	}
	x.lease = t.Hold(f, r.Instance)
	return granted, nil
}
