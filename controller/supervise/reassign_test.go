package supervise

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// Reassign plays the image: it keeps the assignment unless refuses is set.
func (w *world) Reassign(ctx context.Context, p pool.Pod) error {
	w.mu.Lock()
	w.reassigned = append(w.reassigned, p.UID)
	refuses, hangs := w.refuses, w.hangs
	w.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if refuses {
		return errors.New("409 assigned to somebody else")
	}
	w.view.ExpectReady(p.UID, p.Restarts, time.Now())
	return nil
}

// restart shows p with its container started anew, ready for probes or not.
func (w *world) restart(p pool.Pod, isReady bool) {
	p.ReadyAt, p.Forgotten, p.Ready = time.Time{}, true, isReady
	p.Restarts, p.StartedAt, p.Version = 1, time.Now(), p.Version+1
	w.view.Apply(p)
	synctest.Wait()
}

// TakeUp counts, and says that the world's asked ones are asked.
func (w *world) TakeUp(_ context.Context, key fn.Key) map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.takenUp[key]++
	return maps.Clone(w.asked)
}

func (w *world) expectReassigned(want ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.reassigned, want) {
		w.t.Errorf("asked again: %v, want %v", w.reassigned, want)
	}
}

func TestRestartedInstanceAcceptsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 5, 0)
		p := ready(f, "a", time.Now())
		w.view.Apply(p)
		w.beatFor(time.Minute, f, 1, nil)
		w.restart(p, false)
		w.expectReassigned() // not before it can answer
		w.restart(p, true)
		advance(time.Second)
		w.expectReassigned("a")
		w.expect(f, "a")
		if p, _ := w.view.Pod("a"); !p.Routable() {
			t.Error("the instance that accepted again is not routable")
		}
	})
}

func TestRestartedInstanceThatRefusesIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 5, 0)
		w.refuses = true
		p := ready(f, "a", time.Now())
		w.view.Apply(p)
		w.beat(f, 1, nil)
		w.restart(p, true)
		advance(time.Second)
		w.expectReassigned("a")
		w.expect(f, "new-01")
		if !slices.Equal(w.drained, []string{"a"}) || len(w.deleted) > 0 {
			t.Errorf("%v drained, %v deleted; the one that refused is to drain, for it may serve elsewhere", w.drained, w.deleted)
		}
	})
}

// A controller that stops leaves the instance to the next one.
func TestRestartedInstanceSurvivesTheStopOfItsController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := newWorld(t), function("t", 0, 5, 0)
		w.hangs = true
		p := ready(f, "a", time.Now())
		w.view.Apply(p)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		cancel := w.view.Listen(w.Observe)
		defer cancel()
		synctest.Wait()
		w.restart(p, true)
		advance(time.Second)
		w.expectReassigned("a")
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
		w.expect(f, "a")
	})
}

func TestRestartedInstanceThatStaysUnreadyIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 5, 0)
		p := ready(f, "a", time.Now())
		w.view.Apply(p)
		w.beatFor(4*assigning, f, 0, nil) // old enough to be stuck, had it not accepted
		w.restart(p, false)
		w.beatFor(assigning, f, 0, nil)
		w.expect(f, "a")
		w.beatFor(assigning+2*interval, f, 0, nil)
		w.expectReassigned()
		w.expect(f, "new-01")
	})
}

func TestRestartedOneshotIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 5, 0)
		f.Oneshot = true
		p := ready(f, "a", time.Now())
		w.view.Apply(p)
		w.restart(p, true)
		advance(time.Second)
		w.expectReassigned()
		w.expect(f)
	})
}

func TestOthersRestartedInstanceIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 5, 0)
		p := ready(f, "a", time.Now())
		w.foreign[p.Key] = true
		w.view.Apply(p)
		w.restart(p, true)
		advance(2 * interval)
		w.expectReassigned()
	})
}

// What its claimer has left is taken up by the function's replica alone.
func TestAbandonedInstancesAreTakenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, mine, others := setup(t), function("t", 0, 5, 0), function("u", 0, 5, 0)
		w.mu.Lock()
		w.foreign[fn.KeyOf(others)] = true
		w.mu.Unlock()
		for _, f := range []*skipperpb.Function{mine, others} {
			w.view.Apply(assigned(f, f.GetTenant(), time.Now()))
			w.beatFor(2*interval, f, 1, nil)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if own, other := w.takenUp[fn.KeyOf(mine)], w.takenUp[fn.KeyOf(others)]; own == 0 || other != 0 {
			t.Errorf("looked after own instances %d times, after another replica's %d times", own, other)
		}
	})
}
