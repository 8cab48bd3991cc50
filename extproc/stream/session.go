package stream

import (
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"

	"skipper/proto/reason"

	"skipper/extproc/header"
	"skipper/extproc/metrics"
	"skipper/extproc/pick"
	"skipper/extproc/table"
	"skipper/extproc/trust"
	"skipper/extproc/wire"
)

// phase is how far a stream has come; it only ever grows.
type phase uint8

const (
	awaitsHeaders phase = iota
	answered            // with an instance, a refusal, or not at all
)

// session is the state of one stream, in one piece of memory. It belongs to the
// goroutine that serves the stream; while a receive runs beside a wait, that
// goroutine has in. It fits into 512 bytes, above which Go's allocator is slower.
type session struct {
	server *Server
	stream grpc.ServerStream
	in     wire.Request
	phase  phase
	end    metrics.End
	// undelivered says that Envoy never got the answer, so that no request is
	// in progress whatever the end was.
	undelivered bool
	// request is what the end of the stream ends, if it sent one to an instance.
	request request
	warm    wire.WarmReply
	// beside delivers the outcome of a receive that was begun beside a wait.
	beside chan error
}

// receive waits for the next message.
func (x *session) receive() error {
	if x.beside == nil {
		return x.stream.RecvMsg(&x.in)
	}
	err := <-x.beside
	x.beside = nil
	return err
}

// receiveBeside begins to receive on a goroutine of its own, so that the end of
// the stream is noticed during a wait.
func (x *session) receiveBeside() {
	c := make(chan error, 1)
	x.beside = c
	x.server.beside.Go(func() { c <- x.stream.RecvMsg(&x.in) })
}

// dispatch returns the answer to the message in hand; nil where it wants none.
func (x *session) dispatch() *wire.Reply {
	if x.in.Kind != wire.RequestHeaders || x.phase != awaitsHeaders {
		reply := wire.Unchanged(&x.in)
		x.in.Free()
		return reply
	}
	x.phase = answered
	return x.decide()
}

func (x *session) send(r *wire.Reply) error { return x.stream.SendMsg(r) }

// ended notes how the stream ended and returns what Process returns.
func (x *session) ended(err error) error {
	if errors.Is(err, io.EOF) {
		x.end = metrics.Over
		return nil
	}
	if closed(x.server.drains) {
		x.end = metrics.Turned
	}
	return err
}

// finish runs once per stream, whatever its end.
func (x *session) finish() {
	if x.beside == nil {
		x.in.Free()
	}
	s := x.server
	s.opts.Metrics.Ended(x.end)
	if x.phase == awaitsHeaders {
		s.opts.Metrics.Decided(metrics.Silent)
	}
	if x.request.function != nil {
		s.opts.Metrics.Closed()
		x.conclude()
	}
}

// conclude ends the request that the stream sent to an instance.
func (x *session) conclude() {
	s := x.server
	s.register.remove(&x.request)
	e := x.request.end()
	if e.used > 0 {
		s.opts.Metrics.Passes(e.used)
	}
	if x.end != metrics.Over && !x.undelivered {
		s.opts.Table.KeepLost(e.lease, time.Now().Add(s.opts.LostLease))
		return
	}
	if e.lease.Instance != nil && !e.sent.IsZero() && !x.undelivered {
		e.lease.Instance.Serve(e.sent)
	}
	s.giveBack(e.lease)
}

// decide answers the request headers.
func (x *session) decide() *wire.Reply {
	start := time.Now()
	s := x.server
	h := &x.in.Headers
	if h.Functions == 0 && h.IsHealthCheck() {
		s.opts.Metrics.Decided(metrics.Health)
		return healthy()
	}
	if h.Functions == 0 && len(h.RequestID) > 0 {
		return x.again(h)
	}
	f, bad := x.identify(h, start)
	if bad != nil {
		return x.refuse(bad, nil)
	}
	wait := patience(s.opts.HoldTimeout, h.GRPCTimeout, h.ExpectedTimeout)
	if g, ok := s.atOnce(f, start); ok {
		x.in.Free()
		return x.sent(metrics.Warm, f, start, wait, g)
	}
	span := x.coldSpan(f, start)
	x.in.Free()
	return x.cold(f, start, wait, span)
}

// identify names the function that a request is for.
func (x *session) identify(h *wire.Headers, now time.Time) (*header.Function, *refusal) {
	switch {
	case h.Functions > 1:
		return nil, &refusal{reason: reason.HeaderRepeated, message: "X-Skipper-Function stands in the request more than once: send it once"}
	case h.Functions == 0:
		return nil, &refusal{reason: reason.HeaderMissing, message: "X-Skipper-Function is missing: send the function as JSON"}
	}
	f, err := x.server.opts.Trust.Read(x.listener(), h.Function, now)
	if err != nil {
		return nil, headerRefusal(err)
	}
	return f, nil
}

// listener is what the request came in by; "" where that does not matter, which
// spares the look at the stream's metadata.
func (x *session) listener() string {
	if !x.server.opts.Trust.PerListener() {
		return ""
	}
	return trust.ListenerOf(x.stream.Context())
}

// grant is an instance that a request may be sent to.
type grant struct {
	lease table.Lease
	// named says that the controller named the instance, in place of the table.
	named bool
}

func (g grant) source() metrics.Pick {
	if g.named {
		return metrics.FromController
	}
	return metrics.FromTable
}

// fromTable takes an instance from the table for a request that came with f some
// time ago, if there is one that may be used, other than those with the UIDs in
// not. A oneshot's instance is never shared.
func (s *Server) fromTable(f *header.Function, not []string, now time.Time) (grant, bool) {
	if !s.mayUseTable(f) {
		return grant{}, false
	}
	return picked(s.opts.Table.Again(f), f, not, now)
}

// atOnce is fromTable for a request that has just come with f.
func (s *Server) atOnce(f *header.Function, now time.Time) (grant, bool) {
	if !s.mayUseTable(f) {
		return grant{}, false
	}
	return picked(s.opts.Table.Function(f), f, nil, now)
}

func (s *Server) mayUseTable(f *header.Function) bool {
	return !f.Key.Oneshot && !s.opts.Table.Stale()
}

func picked(entry *table.Function, f *header.Function, not []string, now time.Time) (grant, bool) {
	want := pick.Want{Limit: f.Spec.GetScale().GetMaxInstances(), Not: not, Now: now}
	l, ok := pick.Acquire(entry, want, rand.Uint64)
	return grant{lease: l}, ok
}

// sent answers with the instance of g. From now on the request can be found, in
// case that Envoy asks again.
func (x *session) sent(o metrics.Outcome, f *header.Function, start time.Time, patience time.Duration, g grant) *wire.Reply {
	s, r := x.server, &x.request
	r.id, r.function, r.start, r.patience, r.lease, r.named = s.ids.New(), f, start, patience, g.lease, g.named
	s.register.add(r)
	s.opts.Metrics.Sent(o, g.source(), time.Since(start))
	return x.warm.Set(g.lease.Instance.Answer, r.id)
}

// refuse answers in place of a pod of f, which may be nil.
func (x *session) refuse(r *refusal, f *header.Function) *wire.Reply {
	x.server.opts.Metrics.Refused(r.reason)
	return r.reply(f)
}
