package acquire

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
)

// callAll has n callers ask at once and returns how they fared, by cause; -1 is
// a pod.
func (w *world) callAll(n int, within time.Duration, f *skipperpb.Function) map[Cause]int {
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	var mu sync.Mutex
	fared := map[Cause]int{}
	var callers sync.WaitGroup
	for range n {
		callers.Go(func() {
			_, err := w.GetOrAcquire(ctx, f, nil)
			mu.Lock()
			defer mu.Unlock()
			fared[causeOf(err)]++
		})
	}
	callers.Wait()
	return fared
}

func refuse(context.Context, pool.Pod) error { return errors.New("500") }

func TestManyCallersOfABadFunctionCostThreePods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 60)
		w.answers(func(ctx context.Context, p pool.Pod) error {
			_ = slow(time.Second)(ctx, p) // a slow one gives the others time to come
			return refuse(ctx, p)
		})
		fared := w.callAll(50, 20*time.Second, oneshot())
		if fared[AssignRejected] != 50 || w.posts() != 3 {
			t.Errorf("causes %v and %d pods spent, want 50 rejections and 3", fared, w.posts())
		}
		w.answers(nil)
		if fared := w.callAll(1, time.Second, oneshot()); fared[AssignRejected] != 1 {
			t.Errorf("within the back-off: %v", fared)
		}
		after(time.Second)
		if fared := w.callAll(50, time.Second, oneshot()); fared[-1] == 0 || w.posts() != 3+fared[-1] {
			t.Errorf("after the back-off: %v with %d posts", fared, w.posts())
		}
		if fared := w.callAll(5, time.Second, oneshot()); fared[-1] != 5 {
			t.Errorf("once one has accepted: %v, want 5 pods", fared)
		}
		w.settled()
	})
}

func TestManyCallersOfAGoodFunctionWaitForItsFirstAnswerOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 60)
		w.answers(slow(time.Second))
		began := time.Now()
		if fared := w.callAll(50, time.Minute, oneshot()); fared[-1] != 50 {
			t.Errorf("%v, want 50 pods", fared)
		}
		if took := time.Since(began); took > 2500*time.Millisecond {
			t.Errorf("took %s, want two answers' time", took)
		}
		w.settled()
	})
}

func TestCallersBehindAnEmptyPoolAreToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		if fared := w.callAll(10, time.Second, oneshot()); fared[PoolEmpty] != 10 {
			t.Errorf("%v, want 10 times an empty pool", fared)
		}
		w.addPods(10)
		if fared := w.callAll(10, time.Second, oneshot()); fared[-1] != 10 {
			t.Errorf("%v, want 10 pods", fared)
		}
		w.settled()
	})
}

func TestCallersBehindSilentPodsAreToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 20)
		w.answers(slow(time.Hour))
		if fared := w.callAll(10, time.Second, oneshot()); fared[Unfinished] != 10 || w.posts() != 3 {
			t.Errorf("%v with %d posts, want 10 unfinished with 3", fared, w.posts())
		}
		w.settled()
	})
}

func after(d time.Duration) {
	<-time.NewTimer(d).C
	synctest.Wait()
}
