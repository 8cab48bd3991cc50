package acquire

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// flight is one assignment that all callers of a cold function wait for. A
// flight that still waits for a pod ends with its last caller; one that has a
// pod goes on until the pod has answered, so that an impatient caller finds an
// instance when it comes again.
type flight struct {
	signal
	cancel context.CancelFunc // ends the wait for a pod
	abort  context.CancelFunc // ends everything
	// The next two are guarded by the Acquirer's mutex.
	callers   int
	assigning string // the pod being assigned; empty while waiting for one
	// Valid once the signal was given.
	pod pool.Pod
	err error
}

// signal is given once, to all who wait for it.
type signal struct{ given chan struct{} }

func newSignal() signal { return signal{make(chan struct{})} }

// GetOrAcquire returns a routable instance of f that is not excluded by name,
// chosen at random, and where there is none gets one. However many callers
// wait for the same function, they cause one assignment. It goes on while
// anyone waits for it, so it has the latest of its callers' deadlines; a caller
// whose context ends leaves at once. Of a oneshot each call gets a pod of its
// own. Errors are *Error.
func (a *Acquirer) GetOrAcquire(ctx context.Context, f *skipperpb.Function, exclude []string) (pool.Pod, error) {
	if f.GetOneshot() {
		a.metrics.waiting.Inc()
		defer a.metrics.waiting.Dec()
		return a.Acquire(ctx, f)
	}
	for {
		d := Decide(a.cfg.View.Instances(fn.KeyOf(f)), exclude, f.GetScale().GetMaxInstances())
		var err error
		switch d.Step {
		case Use:
			return d.Pods[rand.IntN(len(d.Pods))], nil
		case Await:
			err = a.await(ctx, f, exclude)
		case Assign:
			var p pool.Pod
			if p, err = a.share(ctx, f, exclude); err == nil && p.Name != "" && !slices.Contains(exclude, p.Name) {
				return p, nil
			}
		}
		if err != nil {
			return pool.Pod{}, err
		}
	}
}

// share joins the function's flight, or starts it, and waits for its end. The
// zero Pod without an error means that no other one needs to be assigned.
func (a *Acquirer) share(ctx context.Context, f *skipperpb.Function, exclude []string) (pool.Pod, error) {
	a.metrics.waiting.Inc()
	defer a.metrics.waiting.Dec()
	fl, err := a.board(ctx, f, exclude)
	if fl == nil {
		return pool.Pod{}, err
	}
	select {
	case <-fl.given:
		a.leave(fl, fn.KeyOf(f))
		return fl.pod, fl.err
	case <-ctx.Done():
	}
	if p := a.leave(fl, fn.KeyOf(f)); p != "" {
		return pool.Pod{}, unfinished(ctx, "pod "+p+" took its assignment")
	}
	return pool.Pod{}, classify(a.cfg.Claimer.Explain(f.GetNamespace(), f.GetDeployment(), ctx.Err()))
}

// board counts the caller into the function's flight. Where there is none, the
// caller's decision is made again, because a flight may have ended since, and
// what it brought is seen before it is gone. Nil means that none is needed.
func (a *Acquirer) board(ctx context.Context, f *skipperpb.Function, exclude []string) (*flight, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := fn.KeyOf(f)
	fl := a.flights[key]
	if fl == nil {
		if a.stopping {
			return nil, &Error{Cause: Internal, Message: "controller is stopping: ask again, another replica answers", Err: context.Canceled}
		}
		if Decide(a.cfg.View.Instances(key), exclude, f.GetScale().GetMaxInstances()).Step != Assign {
			return nil, nil
		}
		fl = a.takeOffLocked(context.WithoutCancel(ctx), f)
	}
	fl.callers++
	return fl, nil
}

// takeOffLocked starts a flight, whose life does not depend on the caller that
// starts it.
func (a *Acquirer) takeOffLocked(ctx context.Context, f *skipperpb.Function) *flight {
	answering, abort := context.WithCancel(ctx)
	waiting, cancel := context.WithCancel(answering)
	fl := &flight{signal: newSignal(), cancel: cancel, abort: abort}
	a.flights[fn.KeyOf(f)] = fl
	a.airborne[fl] = struct{}{}
	a.running.Go(func() {
		defer abort()
		a.fly(waiting, answering, fl, f)
	})
	return fl
}

// fly does the assignment and tells the callers.
func (a *Acquirer) fly(waiting, answering context.Context, fl *flight, f *skipperpb.Function) {
	key := fn.KeyOf(f)
	p, err := a.acquire(waiting, answering, wish{function: f, assigning: func(pod string) { a.assigning(fl, key, pod) }, keep: true})
	a.mu.Lock()
	defer a.mu.Unlock()
	fl.pod, fl.err = p, err
	a.unlistLocked(fl, key)
	delete(a.airborne, fl)
	close(fl.given)
}

// assigning notes which pod the flight has; without one and without callers it ends.
func (a *Acquirer) assigning(fl *flight, key fn.Key, pod string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fl.assigning = pod
	a.endIfDesertedLocked(fl, key)
}

// leave counts the caller out. It returns the pod that the flight has, if any.
func (a *Acquirer) leave(fl *flight, key fn.Key) (assigning string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fl.callers--
	a.endIfDesertedLocked(fl, key)
	return fl.assigning
}

func (a *Acquirer) endIfDesertedLocked(fl *flight, key fn.Key) {
	if fl.callers == 0 && fl.assigning == "" {
		fl.cancel()
		a.unlistLocked(fl, key)
	}
}

// unlistLocked makes way for a new flight of the function.
func (a *Acquirer) unlistLocked(fl *flight, key fn.Key) {
	if a.flights[key] == fl {
		delete(a.flights, key)
	}
}

// groundFlights ends all flights and adoptions, and lets none start any more.
func (a *Acquirer) groundFlights() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopping = true
	for fl := range a.airborne {
		fl.abort()
	}
	for _, abort := range a.adoptions {
		abort()
	}
}

// await waits until one of the function's pods changes in a way that changes
// the decision. Pods that whoever claimed them has left are assigned meanwhile.
func (a *Acquirer) await(ctx context.Context, f *skipperpb.Function, exclude []string) error {
	a.metrics.waiting.Inc()
	defer a.metrics.waiting.Dec()
	key := fn.KeyOf(f)
	for {
		changed := a.changeOf(key)
		// Look again after asking to be told, or a change in between is missed.
		instances := a.cfg.View.Instances(key)
		if Decide(instances, exclude, f.GetScale().GetMaxInstances()).Step != Await {
			return nil
		}
		next, due := a.adoptDue(ctx, instances, time.Now())
		if !await(ctx, changed, next, due) {
			return unfinished(ctx, "all the instances that scale.max_instances allows became ready")
		}
	}
}

// await returns at a change or, where something falls due, when it does; false
// if the context ended first.
func await(ctx context.Context, changed <-chan struct{}, in time.Duration, due bool) bool {
	var alarm <-chan time.Time
	if due {
		timer := time.NewTimer(in)
		defer timer.Stop()
		alarm = timer.C
	}
	select {
	case <-changed:
	case <-alarm:
	case <-ctx.Done():
		return false
	}
	return true
}

// changeOf is closed at the next change of any of the function's pods.
func (a *Acquirer) changeOf(key fn.Key) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.awaited[key]
	if s == nil {
		made := newSignal()
		s = &made
		a.awaited[key] = s
	}
	return s.given
}

func (a *Acquirer) podChanged(e pool.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noteLocked(e, time.Now())
	for _, p := range []*pool.Pod{e.Old, e.New} {
		if p == nil {
			continue
		}
		if s := a.awaited[p.Key]; s != nil {
			close(s.given)
			delete(a.awaited, p.Key)
		}
	}
}
