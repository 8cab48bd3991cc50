package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"skipper/controller/acquire"
	"skipper/controller/pool"
	"skipper/controller/scale"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// reserve takes up to n places for assignments, within the bounds. It also
// returns a channel that is closed when the next place is given back.
func (s *Supervisors) reserve(sup *supervisor, n int) (places int, freed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sup.freed == nil {
		sup.freed = make(chan struct{})
	}
	if s.stopping {
		return 0, sup.freed
	}
	n = max(0, min(n, s.opts.GrowthPerFunction-sup.growing, s.opts.Growth-s.growing))
	s.takeLocked(sup, n)
	return n, sup.freed
}

// takeLocked takes n places for assignments.
func (s *Supervisors) takeLocked(sup *supervisor, n int) {
	if sup.freed == nil {
		sup.freed = make(chan struct{})
	}
	sup.growing += n
	s.growing += n
	s.growth.Add(n)
}

// giveBack ends an assignment; the function is converged again where it was one.
func (s *Supervisors) giveBack(key fn.Key, sup *supervisor, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sup.growing--
	s.growing--
	close(sup.freed)
	sup.freed = make(chan struct{})
	if again {
		s.queueLocked(key, 0)
	} else {
		sup.failedAt = time.Now()
	}
	s.growth.Done()
}

// grow has n more instances assigned, in the background and within the bounds,
// but no more at once than the pool has pods, so that functions of an empty
// pool do not take the places of others: one waits for the next pod. A success
// converges the function again, a failure waits for the interval.
func (s *Supervisors) grow(ctx context.Context, r *round, n int) {
	joins := len(r.active)+r.growing == 0
	free := claimable(s.Pods.Unassigned(r.key.Namespace, r.key.Deployment))
	if free == 0 && r.growing > 0 {
		return // one waits already
	}
	n = min(n, max(1, free))
	places, _ := s.reserve(r.sup, n)
	for i := range places {
		go func() {
			err := s.assign(ctx, r.function, joins && i == 0)
			s.giveBack(r.key, r.sup, err == nil)
		}()
	}
}

// assign has one instance assigned. The first one of a function joins callers
// that wait for the same, so that together they cause one assignment.
func (s *Supervisors) assign(ctx context.Context, f *skipperpb.Function, join bool) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.AssignTimeout)
	defer cancel()
	if err := s.acquire(ctx, f, join); err != nil {
		s.metrics.growth.WithLabelValues("failed").Inc()
		s.growthFailed(fn.KeyOf(f), err)
		return err
	}
	s.metrics.growth.WithLabelValues("assigned").Inc()
	s.growthWorked(fn.KeyOf(f))
	return nil
}

// growthFailed says why, but not again in each interval for a function that
// cannot be scaled up at all.
func (s *Supervisors) growthFailed(key fn.Key, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sup := s.supervisors[key]
	if sup == nil {
		return
	}
	if kept, ok := sup.failure.says(causeOf(err), time.Now()); ok {
		s.Logger.Warn("scale up", zap.Stringer("function", key), zap.Int("kept_back", kept), zap.Error(err))
	}
}

func (s *Supervisors) growthWorked(key fn.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sup := s.supervisors[key]; sup != nil {
		sup.failure.over()
	}
}

// causeOf is the same for errors of the same cause, whatever their numbers.
func causeOf(err error) string {
	var e *acquire.Error
	if errors.As(err, &e) {
		return e.Cause.String()
	}
	return fmt.Sprintf("%T", err)
}

func (s *Supervisors) acquire(ctx context.Context, f *skipperpb.Function, join bool) (err error) {
	defer func() {
		if r := recover(); r != nil {
			s.panicked(fn.KeyOf(f), r)
			err = errPanicked
		}
	}()
	if join {
		_, err = s.Acquirer.GetOrAcquire(ctx, f, nil)
		return err
	}
	_, err = s.Acquirer.Acquire(ctx, f)
	return err
}

// Scale brings f to n instances at once, within f's bounds (0 is always
// allowed), as the package comment says. It returns the instances that are
// active afterwards, and an error if one that was missing could not be had
// before ctx ended. f is never a oneshot.
func (s *Supervisors) Scale(ctx context.Context, f *skipperpb.Function, n int, why string) ([]pool.Pod, error) {
	key := fn.KeyOf(f)
	n = scale.Clamp(f.GetScale(), n)
	sup, inForce := s.request(f, n, time.Now())
	have := s.counted(key, sup)
	s.Logger.Info("scale on request", zap.Stringer("function", key),
		zap.Int("desired", n), zap.Int("instances", len(have)), zap.String("reason", why))
	s.requestEvent(inForce, n, len(have), why)
	if n < len(have) {
		if err := s.shrink(ctx, have, len(have)-n, "on request: "+why); err != nil {
			return nil, fmt.Errorf("drain an instance of %s: %w", key, err)
		}
	}
	// Each may be had once: instances that die at once are not followed by others.
	for budget := n; len(have) < n && budget > 0; {
		made, err := s.growNow(ctx, inForce, sup, min(n, len(have)+budget))
		if err != nil {
			return nil, fmt.Errorf("assign an instance of %s: %w", key, err)
		}
		budget -= made
		have = s.counted(key, sup)
	}
	return active(s.Pods.Instances(key)), nil
}

// request notes the wish where the next converge finds it, and returns the
// configuration in force, which is what new instances get.
func (s *Supervisors) request(f *skipperpb.Function, n int, now time.Time) (*supervisor, *skipperpb.Function) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sup := s.heardLocked(f, s.interval())
	sup.requested, sup.requestedAt = n, now
	if n == 0 {
		sup.requestedAt = time.Time{}
	}
	return sup, sup.force.current
}

// counted are the instances that count towards the desired number.
func (s *Supervisors) counted(key fn.Key, sup *supervisor) []pool.Pod {
	instances := s.Pods.Instances(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	counted, _ := sup.countedLocked(instances)
	return counted
}

// growNow makes one step towards n instances: it has missing ones assigned, as
// many as there are places for, or waits for one that is under way. It returns
// how many were assigned.
func (s *Supervisors) growNow(ctx context.Context, f *skipperpb.Function, sup *supervisor, n int) (made int, err error) {
	key := fn.KeyOf(f)
	places, freed := s.reserveMissing(key, sup, n)
	if places == 0 {
		return 0, s.await(ctx, freed)
	}
	errs := make([]error, places)
	var all sync.WaitGroup
	for i := range places {
		all.Go(func() {
			errs[i] = s.assign(ctx, f, false)
			s.giveBack(key, sup, errs[i] == nil)
		})
	}
	all.Wait()
	return places, cmp.Or(errs...)
}

// reserveMissing reserves for what is neither there nor under way.
func (s *Supervisors) reserveMissing(key fn.Key, sup *supervisor, n int) (places int, freed <-chan struct{}) {
	have := s.counted(key, sup)
	s.mu.Lock()
	growing := sup.growing
	s.mu.Unlock()
	return s.reserve(sup, n-len(have)-growing)
}

// recheck is how often a Scale that waits for others' assignments looks again.
const recheck = time.Second

func (s *Supervisors) await(ctx context.Context, freed <-chan struct{}) error {
	t := time.NewTimer(recheck)
	defer t.Stop()
	select {
	case <-freed:
		return nil
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return errStopping
	}
	return nil
}
