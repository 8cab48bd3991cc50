package acquire

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
)

func oneshot() *skipperpb.Function {
	f := testFunction("t1")
	f.Oneshot = true
	return f
}

func causeOf(err error) Cause {
	var e *Error
	if !errors.As(err, &e) {
		return -1
	}
	return e.Cause
}

func TestAcquireClaimsAssignsAndWritesReadyAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		p, err := w.Acquire(t.Context(), testFunction("t1"))
		if err != nil || !p.Routable() {
			t.Fatalf("pod is %s: %v", p.State(), err)
		}
		w.settled()
		want := map[pool.State]int{pool.Ready: 1, pool.Unassigned: 1}
		if diff := cmp.Diff(want, w.pods()); diff != "" {
			t.Errorf("pods (-want +got):\n%s", diff)
		}
	})
}

func TestManyCallersOfAColdFunctionCauseOneAssignment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 10)
		w.answers(slow(time.Second))
		names := make([]string, 30)
		var callers sync.WaitGroup
		for i := range names {
			callers.Go(func() {
				p, err := w.GetOrAcquire(t.Context(), testFunction("t1"), nil)
				if err != nil {
					t.Error(err)
				}
				names[i] = p.Name
			})
		}
		callers.Wait()
		for _, n := range names {
			if n != names[0] {
				t.Errorf("callers got %s and %s", names[0], n)
			}
		}
		if w.posts() != 1 {
			t.Errorf("%d assignments, want 1", w.posts())
		}
		if p, err := w.GetOrAcquire(t.Context(), testFunction("t1"), nil); err != nil || p.Name != names[0] {
			t.Errorf("warm caller got %s: %v", p.Name, err)
		}
		if p, err := w.GetOrAcquire(t.Context(), testFunction("t1"), names[:1]); err != nil || p.Name == names[0] {
			t.Errorf("caller that excludes %s got %s: %v", names[0], p.Name, err)
		}
	})
}

func TestEachOneshotCallGetsItsOwnPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5)
		names := make(chan string, 5) // one for each caller
		var callers sync.WaitGroup
		for range 5 {
			callers.Go(func() {
				p, err := w.GetOrAcquire(t.Context(), oneshot(), nil)
				if err != nil {
					t.Error(err)
				}
				names <- p.Name
			})
		}
		callers.Wait()
		close(names)
		seen := map[string]bool{}
		for n := range names {
			seen[n] = true
		}
		if len(seen) != 5 {
			t.Errorf("5 callers got %d pods", len(seen))
		}
	})
}

func TestOneshotWhoseCallerLeavesIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.answers(slow(time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := w.GetOrAcquire(ctx, oneshot(), nil)
		if causeOf(err) != Unfinished || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		// The caller that leaves in the moment of the answer.
		ctx, cancel = context.WithCancel(t.Context())
		w.answers(func(context.Context, pool.Pod) error {
			cancel()
			return nil
		})
		if _, err := w.GetOrAcquire(ctx, oneshot(), nil); err == nil {
			t.Error("a caller that has left got a pod")
		}
		w.settled()
		if diff := cmp.Diff(map[pool.State]int{}, w.pods()); diff != "" {
			t.Errorf("pods (-want +got):\n%s", diff)
		}
	})
}

func TestFlightOutlivesItsFirstCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var callers sync.WaitGroup
		callers.Go(func() {
			_, err := w.GetOrAcquire(ctx, testFunction("t1"), nil)
			if causeOf(err) != PoolEmpty || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "0 of 0 pods") {
				t.Errorf("impatient caller: %v", err)
			}
		})
		synctest.Wait()
		callers.Go(func() {
			if _, err := w.GetOrAcquire(t.Context(), testFunction("t1"), nil); err != nil {
				t.Errorf("patient caller: %v", err)
			}
		})
		<-time.NewTimer(2 * time.Second).C
		w.addPods(1)
		callers.Wait()
	})
}

func TestDesertedFlightClaimsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.GetOrAcquire(ctx, testFunction("t1"), nil); err == nil {
			t.Fatal("a pod out of nowhere")
		}
		w.addPods(1)
		<-time.NewTimer(time.Second).C
		if diff := cmp.Diff(map[pool.State]int{pool.Unassigned: 1}, w.pods()); diff != "" {
			t.Errorf("pods (-want +got):\n%s", diff)
		}
	})
}

// A claim that is won when nobody waits any more is not lost: pods of a busy pool would go from claim to claim.
func TestClaimWonForADesertedFlightIsAssigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.api.PrependReactor("patch", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
			<-time.After(time.Second)
			return false, nil, nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if _, err := w.GetOrAcquire(ctx, testFunction("t1"), nil); err == nil {
			t.Fatal("answered before the claim")
		}
		<-time.After(5 * time.Second)
		w.settled()
		if diff := cmp.Diff(map[pool.State]int{pool.Ready: 1}, w.pods()); diff != "" {
			t.Errorf("pods (-want +got):\n%s", diff)
		}
	})
}

func TestAssignmentUnderWayServesTheNextCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.answers(slow(5 * time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.GetOrAcquire(ctx, testFunction("t1"), nil); causeOf(err) != Unfinished {
			t.Errorf("impatient caller: %v", err)
		}
		begin := time.Now()
		if _, err := w.GetOrAcquire(t.Context(), testFunction("t1"), nil); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); w.posts() != 1 || took != 4*time.Second {
			t.Errorf("%d assignments, the last after %s", w.posts(), took)
		}
	})
}

func TestRefusalsDeletePodsAndBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 6)
		w.answers(func(_ context.Context, p pool.Pod) error {
			if p.Tenant == "bad" {
				return errors.New("assignment answered with status 500")
			}
			return nil
		})
		var e *Error
		_, err := w.GetOrAcquire(t.Context(), testFunction("bad"), nil)
		if !errors.As(err, &e) || e.Cause != AssignRejected || e.RetryAfter != time.Second || !strings.Contains(e.Message, "status 500") {
			t.Errorf("error %v", err)
		}
		if _, err := w.GetOrAcquire(t.Context(), testFunction("bad"), nil); causeOf(err) != AssignRejected || w.posts() != 3 {
			t.Errorf("in the back-off: %d posts, %v", w.posts(), err)
		}
		if _, err := w.GetOrAcquire(t.Context(), testFunction("good"), nil); err != nil {
			t.Errorf("another tenant: %v", err)
		}
		<-time.NewTimer(time.Second).C
		if _, err := w.GetOrAcquire(t.Context(), testFunction("bad"), nil); causeOf(err) != AssignRejected || w.posts() != 5 {
			t.Errorf("after the back-off one more pod: %d posts, %v", w.posts(), err)
		}
		w.settled()
		if diff := cmp.Diff(map[pool.State]int{pool.Ready: 1, pool.Unassigned: 1}, w.pods()); diff != "" {
			t.Errorf("pods (-want +got):\n%s", diff)
		}
	})
}

func TestSilentPodsCountAsRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 10)
		w.answers(slow(time.Hour))
		call := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := w.GetOrAcquire(ctx, oneshot(), nil)
			return err
		}
		for range 3 {
			if err := call(); causeOf(err) != Unfinished {
				t.Errorf("error %v", err)
			}
		}
		if err := call(); causeOf(err) != AssignRejected {
			t.Errorf("fourth caller: %v", err)
		}
	})
}

func TestFullFunctionWaitsForAnInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5)
		f := testFunction("t1")
		f.Scale.MaxInstances = 1
		p, err := w.GetOrAcquire(t.Context(), f, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.settled()
		unready := p
		unready.Ready = false
		w.view.Apply(unready)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.GetOrAcquire(ctx, f, nil); causeOf(err) != Unfinished {
			t.Errorf("nothing ready: %v", err)
		}
		var callers sync.WaitGroup
		callers.Go(func() {
			if got, err := w.GetOrAcquire(t.Context(), f, nil); err != nil || got.Name != p.Name {
				t.Errorf("got %s: %v", got.Name, err)
			}
		})
		synctest.Wait()
		w.view.Apply(p)
		callers.Wait()
		if w.posts() != 1 {
			t.Errorf("%d assignments, want 1", w.posts())
		}
	})
}

func TestStopEndsFlightsAndLeaksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.answers(slow(time.Hour))
		var callers sync.WaitGroup
		callers.Go(func() {
			if _, err := w.GetOrAcquire(t.Context(), testFunction("t1"), nil); err == nil {
				t.Error("a flight that was cut short gave a pod")
			}
		})
		synctest.Wait()
		w.stopping()
		callers.Wait()
		if diff := cmp.Diff(map[pool.State]int{pool.Unassigned: 1}, w.pods()); diff != "" {
			t.Errorf("pods (-want +got):\n%s", diff)
		}
		if _, err := w.GetOrAcquire(t.Context(), testFunction("t2"), nil); causeOf(err) != Internal {
			t.Errorf("call after the stop: %v", err)
		}
	})
}

func TestReassign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		p, err := w.Acquire(t.Context(), testFunction("t1"))
		if err != nil {
			t.Fatal(err)
		}
		w.settled()
		if err := w.Reassign(t.Context(), p); err != nil || w.posts() != 2 {
			t.Errorf("%d posts: %v", w.posts(), err)
		}
		w.answers(func(context.Context, pool.Pod) error { return errors.New("409") })
		if err := w.Reassign(t.Context(), p); err == nil {
			t.Error("no error for a refusal")
		}
		if err := w.Reassign(t.Context(), pool.Pod{Problem: "unreadable"}); err == nil || !strings.Contains(err.Error(), "unreadable") {
			t.Errorf("pod without a function: %v", err)
		}
	})
}

func TestUnknownDeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		f := testFunction("t1")
		f.Deployment = "nosuch"
		if _, err := w.GetOrAcquire(t.Context(), f, nil); causeOf(err) != DeploymentNotFound {
			t.Errorf("error %v", err)
		}
	})
}
