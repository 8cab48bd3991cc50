package supervise

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// TestAskedIsNotStuck starts a controller that finds instances which have waited
// for long, and holds that it deletes those that nobody asks, and no others.
func TestAskedIsNotStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 4, 4, 0)
		w.hangs, w.takes = true, time.Hour
		advance(2*timeout - interval)
		w.set(func() { w.asked = map[string]bool{"asked": true} })
		for _, uid := range []string{"asked", "left"} {
			w.view.Apply(assigned(f, uid, time.Now().Add(-2*assigning)))
		}
		for _, uid := range []string{"again", "unready"} {
			p := assigned(f, uid, time.Now().Add(-2*assigning))
			p.Forgotten, p.Ready, p.StartedAt = true, uid == "again", p.AssignedAt
			w.view.Apply(p)
		}
		w.beatFor(interval+5*time.Second, f, 0, nil)
		w.expectReassigned("again")
		w.expect(f, "again", "asked")
		w.set(func() { w.asked = nil })
		w.beatFor(interval+assigning, f, 0, nil)
		w.expect(f) // the other one has stayed silent
	})
}

// A restarted instance that drains meanwhile is left to its drain.
func TestRestartedInstanceThatDrainsIsNotDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 5, 0)
		w.hangs = true
		p := ready(f, "a", time.Now())
		w.view.Apply(p)
		w.beat(f, 1, nil)
		w.restart(p, true)
		w.view.ExpectDraining("a", time.Now())
		w.beatFor(2*assigning, f, 1, nil)
		w.expectReassigned("a")
		if len(w.deleted)+len(w.drained) > 0 {
			t.Errorf("%v deleted, %v drained", w.deleted, w.drained)
		}
	})
}

// lateAcquirer has an instance accept while it says whom it asks.
type lateAcquirer struct{ *world }

func (a lateAcquirer) TakeUp(context.Context, fn.Key) map[string]bool {
	a.view.ExpectReady("a", 0, time.Now())
	return nil
}

func TestAcceptedDuringTheRoundIsNotStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 4, 0)
		w.Acquirer = lateAcquirer{w}
		advance(timeout)
		w.view.Apply(assigned(f, "a", time.Now().Add(-2*assigning)))
		w.beatFor(2*interval, f, 0, nil)
		w.expect(f, "a")
		if len(w.deleted)+len(w.drained) > 0 {
			t.Errorf("%v deleted, %v drained", w.deleted, w.drained)
		}
	})
}

func TestGrowthComesBeforeReplacements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 4, 1)
		w.set(func() { w.dry = true })
		w.view.Apply(ofSet(ready(f, "a", time.Now()), "old"))
		w.rollout(1)
		w.beatFor(time.Minute, f, 4, nil)
		w.expect(f, "a")
		w.set(func() { w.dry = false })
		w.beatFor(interval, f, 4, nil)
		w.beatFor(interval, f, 4, nil)
		w.expect(f, "new-0", "new-01", "new-02", "new-03")
	})
}

// TestGrowthLeavesRoomForStaleInstances has the load rise while two of three are
// replaced.
func TestGrowthLeavesRoomForStaleInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 4, 1)
		w.replaceTakes = 25 * time.Second
		for _, uid := range []string{"a", "b", "c"} {
			w.view.Apply(ofSet(ready(f, uid, time.Now()), "old"))
		}
		w.rollout(9)
		most := 0
		for second := range 180 {
			load := uint32(3)
			if w.underReplacement() > 0 || w.replaced > 0 {
				load = 4
			}
			if second%5 == 0 {
				w.beat(f, load, nil)
			}
			advance(time.Second)
			w.set(func() { most = max(most, len(active(w.view.Instances(fn.KeyOf(f))))+w.replacingNow) })
		}
		if n := len(active(w.view.Instances(fn.KeyOf(f)))); n != 4 || most > 5 || w.replaced != 3 {
			t.Errorf("%d instances, at most %d with those that come, %d replaced; want 4, 5 and 3", n, most, w.replaced)
		}
	})
}

// stales holds each drain of a stale instance, and each instance that comes,
// against the bounds.
type stales struct {
	*world
	f *skipperpb.Function
}

func (s stales) Drain(ctx context.Context, p pool.Pod, why string) error {
	left := len(active(s.view.Instances(fn.KeyOf(s.f)))) - 1
	s.Supervisors.mu.Lock()
	latest := s.supervisors[p.Key].latest
	s.Supervisors.mu.Unlock()
	if strings.HasPrefix(why, "stale") && latest != nil && left < latest.Desired {
		s.t.Errorf("the drain of %s leaves %d instances, %d are desired: %s", p.UID, left, latest.Desired, why)
	}
	return s.world.Drain(ctx, p, why)
}

// TestReplacementsKeepTheBounds lives through rollouts of a function whose load
// changes, whose instances die and whose pool is often empty.
func TestReplacementsKeepTheBounds(t *testing.T) {
	replaced := 0
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			w, f := setup(t), function("t", 0, uint32(1+rnd.IntN(6)), 1) //nolint:gosec // small
			w.takes, w.replaceTakes = 3*time.Second, 4*time.Second
			w.Retirer = stales{w, f}
			w.view.ApplyReplicaSet(pool.ReplicaSet{Namespace: "prod", Name: "new", Deployment: "echo", Revision: 2, Replicas: 5})
			w.view.ApplyReplicaSet(pool.ReplicaSet{Namespace: "prod", Name: "old", Deployment: "echo", Revision: 1})
			w.addSpares("new", 6)
			load := uint32(1)
			for second := range 240 {
				w.happens(rnd, f, second, &load)
				advance(time.Second)
				if n := len(active(w.view.Instances(fn.KeyOf(f)))); n > int(f.GetScale().GetMaxInstances())+1 {
					t.Fatalf("seed %d: %d instances", seed, n)
				}
			}
			replaced += w.replaced
		})
	}
	if replaced < 100 {
		t.Errorf("%d replacements show nothing", replaced)
	}
}

// happens is what one second may bring.
func (w *world) happens(rnd *rand.Rand, f *skipperpb.Function, second int, load *uint32) {
	if second%5 == 0 {
		w.beat(f, *load, nil)
	}
	switch all := active(w.view.Instances(fn.KeyOf(f))); rnd.IntN(12) {
	case 0:
		*load = 1 + rnd.Uint32N(7)
		w.beat(f, *load, nil)
	case 1:
		w.set(func() { w.dry = !w.dry })
	case 2, 3: // one more pod of the new ReplicaSet
		w.addSpare("new", fmt.Sprint("spare-", second))
	case 4:
		if len(all) > 0 && second%2 == 0 {
			p := all[rnd.IntN(len(all))]
			w.view.Remove(p.Namespace, p.UID, 0)
		}
	case 5, 6: // a new image: some are stale
		for _, p := range all[:rnd.IntN(len(all)+1)] {
			if p.State() == pool.Ready {
				w.view.Apply(ofSet(p, "old"))
			}
		}
	}
}
