package withdraw

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

const (
	// pause is the least time between two looks: a storm of acknowledgements is
	// looked at together.
	pause = 10 * time.Millisecond
	// look is how often everything is looked at, whatever happens: for what
	// falls due by time, and for the informers' progress, of which no word comes.
	look = 250 * time.Millisecond
	// Members are told at once when something moved, no sooner than tellPause
	// after the last time, while they are waited for again after a time that
	// doubles up to tellEvery, and each tellEvery anyway.
	tellPause = 20 * time.Millisecond
	tellFirst = 100 * time.Millisecond
	tellEvery = time.Second
	// perSecond bounds the withdrawals told to each member in a second.
	perSecond = 20_000
	// lostSoon is how long an extproc that has gone elsewhere takes to be found,
	// so that losing it is worth no line in the log.
	lostSoon = 5 * time.Second
)

// Run follows withdrawals until the context ends.
func (t *Tracker) Run(ctx context.Context) error {
	var sharing sync.WaitGroup
	defer sharing.Wait()
	sharing.Go(func() { t.share(ctx) })
	tick := time.NewTicker(look)
	defer tick.Stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-rest.C:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.wake:
		case <-tick.C:
		}
		t.step()
		rest.Reset(pause)
	}
}

// step looks at everything once. What needs other locks is asked without ours.
func (t *Tracker) step() {
	asOf := time.Now()
	subs := subscribersOf(t.cfg.Subscribers.Subscribers())
	members := t.cfg.Peers.Members()
	settled := settledOf(t.waitingFor(subs, members, asOf), func(u unacknowledged) bool {
		return len(t.cfg.Subscribers.Unacknowledged(typeURL, u.name, u.generation)) > 0
	})
	republish, free := t.settle(settled)
	for _, key := range republish {
		t.cfg.Republish(key)
	}
	if len(free) > 0 {
		t.cfg.Freed(free)
	}
}

func (t *Tracker) waitingFor(subs nodes, members []string, asOf time.Time) []unacknowledged {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.book
	if !slices.Equal(b.own.inStep, subs.inStep) || !slices.Equal(b.own.behind, subs.behind) {
		b.changed = true
	}
	b.own = subs
	b.setMembers(members, asOf)
	b.inStep(subs.inStep, asOf)
	return b.unacknowledged()
}

func (t *Tracker) settle(settled []unacknowledged) (republish []fn.Key, free []string) {
	fresh := t.cfg.FreshAt()
	t.mu.Lock()
	defer t.mu.Unlock()
	b, now := t.book, time.Now()
	for _, u := range settled {
		b.acknowledge(u)
	}
	republish = b.overdue(t.cfg.View.Watermark, fresh)
	for _, r := range b.unseen() {
		p, known := t.cfg.View.Pod(r.uid)
		if passed(r, p, known, t.cfg.View.Watermark(r.key.Namespace), fresh) && b.pass(r, known) {
			republish = append(republish, r.key)
		}
	}
	free, told := b.advance(now)
	for _, uid := range told {
		t.metrics.took.Observe(now.Sub(b.records[uid].since).Seconds())
	}
	b.forget(now)
	t.sayLost(now)
	if b.changed {
		b.changed = false
		remind(t.tell)
	}
	return republish, free
}

// passed says that the view has got past the pod's leaving, for good: it has
// seen a version at which others saw it leave, or everything since it was heard
// of, and does not show it in routing.
func passed(r *record, p pool.Pod, known bool, watermark uint64, fresh time.Time) bool {
	if !r.shownBy(watermark, fresh) {
		return false
	}
	return !known || p.State() >= pool.Draining || (p.Function != nil && p.Key != r.key)
}

// sayLost logs subscribers that are away for longer than a change of replica takes.
func (t *Tracker) sayLost(now time.Time) {
	for node, l := range t.book.lost {
		if !l.said && now.Sub(l.since) > lostSoon {
			l.said = true
			t.log.Warn("extproc went away without goodbye: what it may not know blocks drains and addresses until it is back or its table has expired",
				zap.String("node", node), zap.Time("since", l.since), zap.Duration("at_most", t.book.staleness))
		}
	}
}

// share tells the other members how far this replica is, and asks how far they
// are, until the context ends.
func (t *Tracker) share(ctx context.Context) {
	wait := tellFirst
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			wait = min(2*wait, tellEvery)
		case <-t.tell:
			wait = tellFirst
		}
		told, unfinished := t.round(ctx)
		if !unfinished {
			wait = tellEvery
		}
		rest := tellPause + time.Duration(told)*time.Second/perSecond
		if !t.sleep(ctx, rest) {
			return
		}
		timer.Reset(max(wait-rest, 0))
	}
}

func (t *Tracker) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// round calls every member once. It returns how many withdrawals they were told
// of, and whether some member is not done with one.
func (t *Tracker) round(ctx context.Context) (told int, unfinished bool) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	fresh := !t.cfg.FreshAt().IsZero() && time.Since(t.cfg.FreshAt()) < freshFor
	t.mu.Lock()
	message, epochs := t.book.message(t.cfg.Self, fresh, time.Now())
	t.mu.Unlock()
	var calls sync.WaitGroup
	for _, ip := range t.cfg.Peers.Members() {
		calls.Go(func() { t.ask(ctx, ip, message, epochs) })
	}
	calls.Wait()
	return len(epochs), t.unfinished()
}

// freshFor is how old the latest proof of a view's freshness may be.
const freshFor = 3 * time.Minute

func (t *Tracker) ask(ctx context.Context, ip string, message *skipperpb.ShareProgressRequest, epochs map[string]int) {
	var answer *skipperpb.ShareProgressResponse
	err := t.cfg.Peers.Call(ctx, ip, func(ctx context.Context, c skipperpb.ReplicaServiceClient) (err error) {
		answer, err = c.ShareProgress(ctx, message)
		return err
	})
	if err != nil {
		t.metrics.calls.WithLabelValues("failed").Inc()
		t.log.Debug("tell progress", zap.String("to", ip), zap.Error(err))
		return
	}
	t.metrics.calls.WithLabelValues("answered").Inc()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.book.answered(ip, epochs, answer)
	remind(t.wake)
}

// unfinished says that some member is not known to be done with something.
func (t *Tracker) unfinished() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.book.records {
		for _, ip := range t.book.members {
			if !r.closed && r.done[ip] < handled {
				return true
			}
		}
	}
	return false
}
