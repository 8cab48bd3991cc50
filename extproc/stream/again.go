package stream

import (
	"time"

	"go.uber.org/zap"

	"skipper/proto/reason"

	"skipper/extproc/metrics"
	"skipper/extproc/pass"
	"skipper/extproc/table"
	"skipper/extproc/wire"
)

// later is a further pass of a request, on a stream of its own that Envoy opens
// while the first one is still open.
type later struct {
	*request
	notes
}

// again answers Envoy, which asks for another try at a request.
func (x *session) again(h *wire.Headers) *wire.Reply {
	s := x.server
	r, cause := s.register.find(h.RequestID), pass.CauseOf(h.AttemptCount)
	x.in.Free()
	if r == nil {
		s.opts.Metrics.Again(metrics.LostRecord)
		return x.refuse(lostRecord(), nil)
	}
	s.opts.Metrics.Again(secondPass(cause))
	n, ok := r.begin(cause)
	if !ok {
		return x.abandoned()
	}
	s.blame(n.blamed)
	s.giveBack(n.dropped)
	p := &later{request: r, notes: n}
	d := s.consider(p, cause)
	s.opts.Logger.Debug("another pass", zap.String("function", r.function.Name), zap.Stringer("cause", cause), zap.Int("passes", n.used),
		zap.Stringer("action", d.Action), zap.Duration("wait", d.Wait), zap.String("why", d.Why))
	return x.act(p, d)
}

func secondPass(c pass.Cause) metrics.Cause {
	if c == pass.Failed {
		return metrics.Failed
	}
	return metrics.Unknown
}

// blame notes that i did not take a request; nil is nobody.
func (s *Server) blame(i *table.Instance) {
	if i == nil || !i.Fail(time.Now(), s.opts.Quarantine) {
		return
	}
	s.opts.Metrics.Quarantined()
	s.opts.Logger.Info("instance in quarantine: requests did not reach it", zap.String("instance", i.Name), zap.String("uid", i.UID), zap.Duration("for", s.opts.Quarantine))
}

// giveBack ends the use of an instance that is not needed any more.
func (s *Server) giveBack(l table.Lease) {
	if l.Instance == nil {
		return
	}
	if l.Function.Key.Oneshot {
		s.opts.Release(l.Instance.Proto)
	}
	l.Release()
}

// consider decides by what the table knows at this moment.
func (s *Server) consider(p *later, cause pass.Cause) pass.Decision {
	t := s.opts.Table
	stale := t.Stale()
	st := pass.State{Cause: cause, Passes: p.used, Unknown: p.unknown, Usable: p.usable(stale), Tried: uids(p.tried), Deadline: p.deadline()}
	if p.present != nil {
		st.Present = p.present.UID
	}
	if !stale && !p.function.Key.Oneshot {
		st.Known = uids(t.Again(p.function).View().Instances)
	}
	return pass.Decide(st, s.limits(), time.Now())
}

func (s *Server) limits() pass.Limits {
	return pass.Limits{Passes: s.opts.Attempts, Backoff: s.opts.Backoff, MaxBackoff: s.opts.MaxBackoff}
}

func (x *session) act(p *later, d pass.Decision) *wire.Reply {
	switch d.Action {
	case pass.Refuse:
		return x.refuse(&refusal{reason: d.Reason, message: d.Why, again: againSoon}, p.function)
	case pass.Same:
		return x.same(p, d.Wait)
	case pass.Other:
		if g, ok := x.server.fromTable(p.function, p.instances(), time.Now()); ok {
			return x.moved(p, g)
		}
	}
	return x.elsewhere(p)
}

// instances are those that another one is wanted in place of: what failed,
// and the present one, which Envoy may just not know.
func (p *later) instances() []string {
	out := uids(p.tried)
	if p.present != nil {
		out = append(out, p.present.UID)
	}
	return out
}

// same sends the request to the instance that it had, after a while.
func (x *session) same(p *later, pause time.Duration) *wire.Reply {
	if bad, gone := x.pause(p, pause); bad != nil {
		return x.refuse(bad, p.function)
	} else if gone {
		return x.abandoned()
	}
	if !p.usable(x.server.opts.Table.Stale()) {
		return x.elsewhere(p)
	}
	l, ok := p.stay()
	if !ok {
		return x.abandoned()
	}
	return x.resent(p, l)
}

// pause waits, unless the request ends or the process stops before.
func (x *session) pause(p *later, d time.Duration) (bad *refusal, gone bool) {
	s := x.server
	s.held.enter()
	defer s.held.leave()
	if !x.moreTime(p.deadline()) {
		return nil, true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil, false
	case err := <-x.beside:
		x.beside <- err // for receive; it has room for one
		return nil, true
	case <-p.notes.over:
		return nil, true
	case <-s.hurry:
		return stopping(), false
	}
}

// elsewhere asks the controller for an instance that was not tried.
func (x *session) elsewhere(p *later) *wire.Reply {
	o := x.hold(&wait{function: p.function, start: p.start, length: p.patience, tried: p.tried, over: p.notes.over})
	switch o.verdict {
	case granted:
		return x.moved(p, o.grant)
	case left:
		return x.abandoned()
	case exhausted:
		return x.triedOnce(p, o.instance)
	}
	return x.refuse(o.refusal, p.function)
}

// triedOnce sends the request to an instance that was tried, after a while: the
// controller has no other.
func (x *session) triedOnce(p *later, named *table.Instance) *wire.Reply {
	s := x.server
	left := time.Until(p.deadline())
	if bad, gone := x.pause(p, min(s.limits().Pause(p.used), left)); bad != nil {
		return x.refuse(bad, p.function)
	} else if gone {
		return x.abandoned()
	}
	for _, not := range [][]string{uids(p.tried), nil} {
		if g, ok := s.fromTable(p.function, not, time.Now()); ok {
			return x.moved(p, g)
		}
	}
	if s.opts.Table.Stale() {
		return x.moved(p, grant{lease: s.opts.Table.Hold(p.function, named), named: true})
	}
	return x.refuse(&refusal{reason: reason.ConnectFailed, message: "the function's instances took no connection, and have left since: send the request again", again: againSoon}, p.function)
}

// moved answers with a new instance and gives the one before back.
func (x *session) moved(p *later, g grant) *wire.Reply {
	back, ok := p.move(g, time.Now())
	x.server.giveBack(back)
	if !ok {
		return x.abandoned()
	}
	x.server.opts.Metrics.Picked(g.source())
	return x.resent(p, g.lease)
}

// resent answers as the first pass was answered, with the same request id.
func (x *session) resent(p *later, l table.Lease) *wire.Reply {
	x.server.opts.Metrics.Decided(metrics.Resent)
	return x.warm.Set(l.Instance.Answer, p.id)
}

func (x *session) abandoned() *wire.Reply {
	x.server.opts.Metrics.Decided(metrics.Abandoned)
	return nil
}

func uids(all []*table.Instance) []string {
	out := make([]string, 0, len(all))
	for _, i := range all {
		out = append(out, i.UID)
	}
	return out
}
