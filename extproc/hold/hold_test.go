package hold

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	skipperpb "skipper/proto"

	"skipper/extproc/header"
	"skipper/extproc/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func function(tenant string, oneshot bool) *header.Function {
	return header.Of(&skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: tenant, Oneshot: oneshot, Scale: &skipperpb.Scale{MaxInstances: 3}})
}

// asker answers after a time, and records what it was asked.
type asker struct {
	takes  time.Duration
	answer func(n int) Answer
	deaf   bool // answers even if the question was given up

	mu       sync.Mutex
	asked    int
	excludes [][]string
	left     []time.Duration // until the deadline of each question
}

func (a *asker) Ask(ctx context.Context, _ *header.Function, exclude []string) Answer {
	a.mu.Lock()
	a.asked++
	n := a.asked
	a.excludes = append(a.excludes, exclude)
	d, _ := ctx.Deadline()
	a.left = append(a.left, time.Until(d))
	a.mu.Unlock()
	if a.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	if !wait(ctx, a.takes) {
		return Answer{Err: ctx.Err()}
	}
	return a.answer(n)
}

func (a *asker) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

func instance(n int) Answer { return Answer{Instance: &table.Instance{UID: fmt.Sprint(n)}} }

func hall(a *asker) (*Hall, *[]string) {
	orphans := &[]string{}
	return New(Options{
		Asker: a, PerFunction: 3, PerTenant: 5, Total: 8, Attempts: 3, Backoff: 100 * time.Millisecond, MaxBackoff: time.Second,
		Orphan: func(i *table.Instance) { *orphans = append(*orphans, i.UID) },
	}), orphans
}

func enter(t *testing.T, h *Hall, f *header.Function, patience time.Duration) *Ticket {
	t.Helper()
	k, err := h.Enter(f, time.Now().Add(patience))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestWaitersOfAFunctionShareOneQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{takes: time.Second, answer: instance}
		h, _ := hall(a)
		defer h.Close()
		x, y := enter(t, h, function("t", false), 30*time.Second), enter(t, h, function("t", false), 30*time.Second)
		if got := (<-x.Result).Instance.UID + (<-y.Result).Instance.UID; got != "11" || a.count() != 1 {
			t.Errorf("got %s by %d questions", got, a.count())
		}
		if x.Leave() != nil || y.Leave() != nil || h.Waiting() != 0 {
			t.Errorf("%d places are taken after all", h.Waiting())
		}
	})
}

func TestOneshotsAskEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{takes: time.Second, answer: instance}
		h, _ := hall(a)
		defer h.Close()
		x, y := enter(t, h, function("t", true), 30*time.Second), enter(t, h, function("t", true), 30*time.Second)
		got := map[string]bool{(<-x.Result).Instance.UID: true, (<-y.Result).Instance.UID: true}
		if len(got) != 2 || a.count() != 2 {
			t.Errorf("got %v by %d questions", got, a.count())
		}
		_, _ = x.Leave(), y.Leave()
	})
}

func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := hall(&asker{takes: time.Hour, answer: instance})
		defer h.Close()
		var all []*Ticket
		for _, f := range []struct {
			function *header.Function
			want     string
		}{
			{function("a", false), ""},
			{function("a", false), ""},
			{function("a", false), ""},
			{function("a", false), "function"},
			{function("a", true), ""},
			{function("a", true), ""},
			{function("a", true), "tenant"},
			{function("b", false), ""},
			{function("c", false), ""},
			{function("d", false), ""},
			{function("e", false), "extproc"},
		} {
			k, err := h.Enter(f.function, time.Now().Add(time.Minute))
			var full *FullError
			if errors.As(err, &full); (full == nil) != (f.want == "") || full != nil && full.Of != f.want {
				t.Errorf("%s: error is %v, want full %q", f.function.Name, err, f.want)
			}
			if k != nil {
				all = append(all, k)
			}
		}
		for _, k := range all {
			_ = k.Leave()
		}
		if h.Waiting() != 0 || len(h.tenants) != 0 || len(h.functions) != 0 || len(h.lines) != 0 {
			t.Errorf("left behind: %d, %v, %v, %d lines", h.Waiting(), h.tenants, h.functions, len(h.lines))
		}
	})
}

func TestLastLeaverEndsTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{takes: time.Hour, answer: instance}
		h, _ := hall(a)
		defer h.Close()
		x, y := enter(t, h, function("t", false), 30*time.Second), enter(t, h, function("t", false), 30*time.Second)
		_ = x.Leave()
		synctest.Wait()
		if len(h.lines) != 1 {
			t.Fatal("the question ended while somebody waits")
		}
		_ = y.Leave()
		h.flights.Wait() // ends at once, or the bubble is stuck for an hour
		z := enter(t, h, function("t", false), 30*time.Second)
		synctest.Wait()
		if a.count() != 2 {
			t.Errorf("%d questions, want a new one for the new waiter", a.count())
		}
		_ = z.Leave()
	})
}

func TestOneshotsInstanceWithoutWaiterIsAnOrphan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{takes: time.Second, answer: instance, deaf: true}
		h, orphans := hall(a)
		gone := enter(t, h, function("t", true), 30*time.Second)
		synctest.Wait()
		_ = gone.Leave()
		h.flights.Wait()
		late := enter(t, h, function("t", true), 30*time.Second)
		h.flights.Wait() // answered, but not received
		_ = late.Leave()
		h.Close()
		if diff := cmp.Diff([]string{"1", "2"}, *orphans); diff != "" {
			t.Errorf("orphans (-want +got):\n%s", diff)
		}
	})
}

func TestTroubleIsRetriedWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		a := &asker{answer: func(n int) Answer {
			if n < 6 {
				return Answer{Err: down}
			}
			return instance(n)
		}}
		h, _ := hall(a)
		defer h.Close()
		start := time.Now()
		x := enter(t, h, function("t", false), 30*time.Second)
		if r := <-x.Result; r.Err != nil || r.Instance.UID != "6" {
			t.Errorf("result is %v", r)
		}
		if took := time.Since(start); took < 300*time.Millisecond || took > 5*time.Second {
			t.Errorf("five pauses took %s", took)
		}
		if err := x.Leave(); !errors.Is(err, down) {
			t.Errorf("last trouble is %v", err)
		}
	})
}

func TestFinalErrorGoesToAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := errors.New("no")
		h, _ := hall(&asker{takes: time.Second, answer: func(int) Answer { return Answer{Err: no, Final: true} }})
		defer h.Close()
		x, y := enter(t, h, function("t", false), 30*time.Second), enter(t, h, function("t", false), 30*time.Second)
		if !errors.Is((<-x.Result).Err, no) || !errors.Is((<-y.Result).Err, no) {
			t.Error("a waiter was not told")
		}
		_, _ = x.Leave(), y.Leave()
	})
}

func TestUnusableAnswersAreExcludedAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		a := &asker{answer: func(n int) Answer { return Answer{Err: gone, Exclude: fmt.Sprint(n)} }}
		h, _ := hall(a)
		defer h.Close()
		x := enter(t, h, function("t", false), 30*time.Second)
		if r := <-x.Result; !errors.Is(r.Err, gone) {
			t.Errorf("result is %v", r)
		}
		_ = x.Leave()
		if diff := cmp.Diff([][]string{nil, {"1"}, {"1", "2"}}, a.excludes); diff != "" {
			t.Errorf("excluded (-want +got):\n%s", diff)
		}
	})
}

func TestWakeSendsAllBackToTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := hall(&asker{takes: time.Hour, answer: instance})
		defer h.Close()
		f := function("t", false)
		x, y, other := enter(t, h, f, 30*time.Second), enter(t, h, f, 30*time.Second), enter(t, h, function("u", false), 30*time.Second)
		h.Wake(f.Name)
		h.Wake("unknown")
		if r := <-x.Result; r != (Result{}) {
			t.Errorf("result is %v", r)
		}
		<-y.Result
		select {
		case r := <-other.Result:
			t.Errorf("another function was woken: %v", r)
		default:
		}
		_, _, _ = x.Leave(), y.Leave(), other.Leave()
	})
}

func TestQuestionEndsJustBeforeThePatienceOfItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{takes: time.Hour, answer: instance}
		h, _ := hall(a)
		defer h.Close()
		x := enter(t, h, function("t", false), 30*time.Second)
		y := enter(t, h, function("u", false), time.Second)
		synctest.Wait()
		got := map[time.Duration]bool{a.left[0]: true, a.left[1]: true}
		if diff := cmp.Diff(map[time.Duration]bool{29750 * time.Millisecond: true, 900 * time.Millisecond: true}, got); diff != "" {
			t.Errorf("deadlines (-want +got):\n%s", diff)
		}
		_, _ = x.Leave(), y.Leave()
	})
}

func TestCloseEndsAllQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := hall(&asker{takes: time.Hour, answer: instance})
		x := enter(t, h, function("t", false), 30*time.Second)
		h.Close()
		_ = x.Leave()
	})
}
