package acquire

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// single is a function that may have one instance only, so that an abandoned
// one stands in its way.
func single() *skipperpb.Function {
	f := testFunction("t1")
	f.Scale.MaxInstances = 1
	return f
}

// abandoned is a pod whose claimer died before it posted the assignment.
func (w *world) abandoned(f *skipperpb.Function) pool.Pod {
	w.t.Helper()
	p, err := w.claimer.Claim(w.t.Context(), f)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// served asks for f with the patience of a request; it returns the pod's name.
func (w *world) served(f *skipperpb.Function) string {
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	p, err := w.GetOrAcquire(ctx, f, nil)
	if err != nil {
		w.t.Error(err)
	}
	return p.Name
}

func TestAbandonedAssignmentIsTakenUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5)
		left, begin := w.abandoned(single()), time.Now()
		w.answers(slow(2 * time.Second))
		var callers sync.WaitGroup
		for range 5 {
			callers.Go(func() {
				if got := w.served(single()); got != left.Name {
					t.Errorf("got pod %q, want %q", got, left.Name)
				}
			})
		}
		callers.Wait()
		if took := time.Since(begin); w.posts() != 1 || took != adoptAfter+2*time.Second {
			t.Errorf("%d assignments, the callers waited %s", w.posts(), took)
		}
		w.settled()
		if diff := cmp.Diff(map[pool.State]int{pool.Ready: 1, pool.Unassigned: 4}, w.pods()); diff != "" {
			t.Errorf("pods (-want +got):\n%s", diff)
		}
	})
}

// A function that nobody asks for at the moment gets its instance all the same.
func TestAbandonedAssignmentIsTakenUpWithoutCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		left := w.abandoned(single())
		w.answers(slow(1500 * time.Millisecond))
		for second := range 10 {
			asked := w.TakeUp(t.Context(), fn.KeyOf(single()))
			if want := second == 3 || second == 4; asked[left.UID] != want || len(asked) > 1 {
				t.Errorf("after %d s these are asked: %v", second, asked)
			}
			<-time.After(time.Second)
		}
		w.settled()
		if diff := cmp.Diff(map[pool.State]int{pool.Ready: 1}, w.pods()); diff != "" || w.posts() != 1 {
			t.Errorf("%d assignments, pods (-want +got):\n%s", w.posts(), diff)
		}
	})
}

func TestAbandonedPodThatRefusesIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		left := w.abandoned(single())
		w.answers(func(_ context.Context, p pool.Pod) error {
			if p.Name == left.Name {
				return errors.New("assignment answered with status 500")
			}
			return nil
		})
		if got := w.served(single()); got == left.Name {
			t.Errorf("got pod %s, which refuses", got)
		}
		w.settled()
		if diff := cmp.Diff(map[pool.State]int{pool.Ready: 1, pool.Draining: 1}, w.pods()); diff != "" {
			t.Errorf("its claimer may yet have it serve; pods (-want +got):\n%s", diff)
		}
		<-time.After(drainsFor + time.Second)
		w.settled()
		if diff := cmp.Diff(map[pool.State]int{pool.Ready: 1}, w.pods()); diff != "" {
			t.Errorf("pods in the end (-want +got):\n%s", diff)
		}
	})
}

func TestPodThatIsBeingAssignedIsNotTakenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.answers(slow(10 * time.Second))
		var callers sync.WaitGroup
		callers.Go(func() {
			if _, err := w.Acquire(t.Context(), single()); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		w.served(single())
		callers.Wait()
		if w.posts() != 1 {
			t.Errorf("%d assignments, want 1", w.posts())
		}
	})
}

// What another replica had the pod accept is kept, although the view does not
// show it yet; what nobody is known to have had it accept drains.
func TestPodThatAnotherReplicaHadAcceptIsKept(t *testing.T) {
	for _, tt := range []struct {
		name     string
		accepted bool
		want     map[pool.State]int
	}{
		{"accepted elsewhere", true, map[pool.State]int{pool.Ready: 1}},
		{"not accepted", false, map[pool.State]int{pool.Draining: 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1)
			w.answers(func(ctx context.Context, p pool.Pod) error {
				if tt.accepted {
					if _, err := w.api.CoreV1().Pods("prod").Patch(ctx, p.Name, types.JSONPatchType, readyPatch(p, time.Now()), metav1.PatchOptions{}); err != nil {
						t.Error(err)
					}
				}
				timer := time.NewTimer(adoptAfter + time.Second)
				defer timer.Stop()
				<-timer.C
				return errors.New("connection was reset")
			})
			ctx, cancel := context.WithTimeout(t.Context(), adoptAfter+2*time.Second)
			defer cancel()
			_, err := w.GetOrAcquire(ctx, single(), nil)
			if (err == nil) != tt.accepted {
				t.Errorf("%s: GetOrAcquire = %v", tt.name, err)
			}
			w.settled()
			if d := cmp.Diff(tt.want, w.pods()); d != "" {
				t.Errorf("%s: pods by state (-want +got):\n%s", tt.name, d)
			}
		})
	}
}

func TestStopLeavesAbandonedPodsToTheNextReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.abandoned(single())
		w.answers(slow(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), 2*adoptAfter)
		defer cancel()
		if _, err := w.GetOrAcquire(ctx, single(), nil); causeOf(err) != Unfinished {
			t.Errorf("error %v", err)
		}
		w.stopping()
		if diff := cmp.Diff(map[pool.State]int{pool.Assigned: 1}, w.pods()); diff != "" {
			t.Errorf("pods (-want +got):\n%s", diff)
		}
	})
}

// A caller may have decided that it needs a pod just before the flight ended
// that brought one.
func TestDecisionIsMadeAgainBeforeAFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		f := testFunction("t1")
		if _, err := w.board(t.Context(), f, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if late, err := w.board(t.Context(), f, nil); late != nil || err != nil {
			t.Errorf("a second flight took off: %v", err)
		}
		w.settled()
		if diff := cmp.Diff(map[pool.State]int{pool.Ready: 1, pool.Unassigned: 1}, w.pods()); diff != "" {
			t.Errorf("pods (-want +got):\n%s", diff)
		}
	})
}

// A restarted pod that is asked from here, and meanwhile accepts from another
// replica, serves.
func TestRestartedPodThatAnotherReplicaHadAcceptIsKept(t *testing.T) {
	for _, accepted := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1)
			p := w.abandoned(single())
			w.answers(func(ctx context.Context, p pool.Pod) error {
				if accepted {
					if _, err := w.api.CoreV1().Pods("prod").Patch(ctx, p.Name, types.JSONPatchType, readyPatch(p, time.Now()), metav1.PatchOptions{}); err != nil {
						t.Error(err)
					}
				}
				return errors.New("connection was reset")
			})
			if err := w.Reassign(t.Context(), p); (err == nil) != accepted {
				t.Errorf("accepted elsewhere: %v; Reassign = %v", accepted, err)
			}
		})
	}
}

// A pod that is asked although it serves, and drains meanwhile, is left to its drain.
func TestPodThatDrainsWhileItIsAskedIsNotDeleted(t *testing.T) {
	for _, refuses := range []error{nil, errors.New("connection was reset")} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1)
			w.abandoned(single())
			w.answers(func(_ context.Context, p pool.Pod) error {
				w.view.ExpectDraining(p.UID, time.Now())
				return refuses
			})
			for range 5 {
				w.TakeUp(t.Context(), fn.KeyOf(single()))
				<-time.After(time.Second)
			}
			w.settled()
			if n := w.pods(); n[pool.Draining]+n[pool.Assigned] != 1 || w.posts() != 1 {
				t.Errorf("%d assignments, pods %v", w.posts(), n)
			}
		})
	}
}
