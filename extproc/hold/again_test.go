package hold

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"skipper/extproc/table"
)

func enterWithout(t *testing.T, h *Hall, patience time.Duration, exclude ...string) *Ticket {
	t.Helper()
	k, err := h.Enter(function("t", false), time.Now().Add(patience), exclude...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestThoseWhoExcludeTheSameShareAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{takes: time.Second, answer: instance}
		h, _ := hall(a)
		defer h.Close()
		x, y := enterWithout(t, h, time.Minute, "p", "q"), enterWithout(t, h, time.Minute, "q", "p")
		z := enterWithout(t, h, time.Minute)
		if p, q := (<-x.Result).Instance, (<-y.Result).Instance; p != q || p == (<-z.Result).Instance {
			t.Error("answers went to the wrong line")
		}
		synctest.Wait()
		if a.count() != 2 {
			t.Errorf("%d questions, want 2", a.count())
		}
		seen := map[int]bool{}
		for _, e := range a.excludes {
			seen[len(e)] = true
		}
		if diff := cmp.Diff(map[int]bool{0: true, 2: true}, seen); diff != "" {
			t.Errorf("number of excluded (-want +got):\n%s", diff)
		}
		for _, k := range []*Ticket{x, y, z} {
			_ = k.Leave()
		}
		if h.Waiting() != 0 || len(h.lines) != 0 {
			t.Errorf("%d places and %d lines left behind", h.Waiting(), len(h.lines))
		}
	})
}

func TestWakeReachesAllLinesOfAFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{takes: time.Hour, answer: instance}
		h, _ := hall(a)
		defer h.Close()
		x, y := enterWithout(t, h, time.Minute, "p"), enterWithout(t, h, time.Minute)
		h.Wake(function("t", false).Name)
		if r, s := <-x.Result, <-y.Result; r != (Result{}) || s != (Result{}) {
			t.Errorf("results are %v and %v", r, s)
		}
		_, _ = x.Leave(), y.Leave()
	})
}

// TestPlaceIsKept: whoever must wait anew is not refused because others came.
func TestPlaceIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{takes: time.Second, answer: instance}
		h, _ := hall(a) // has room for 3 of a function
		defer h.Close()
		x := enterWithout(t, h, 30*time.Second)
		first := (<-x.Result).Instance
		others := []*Ticket{enterWithout(t, h, time.Minute), enterWithout(t, h, time.Minute)}
		if _, err := h.Enter(function("t", false), time.Now().Add(time.Minute)); err == nil {
			t.Fatal("there was room for a fourth")
		}
		x.Again()
		if h.Waiting() != 3 {
			t.Errorf("%d places are taken, want 3", h.Waiting())
		}
		if second := (<-x.Result).Instance; second == first || second != (<-others[0].Result).Instance {
			t.Error("the answer is not the others'")
		}
		x.Again("p")
		_ = x.Leave()
		_, _ = others[0].Leave(), others[1].Leave()
		if h.Waiting() != 0 || len(h.lines) != 0 {
			t.Errorf("%d places and %d lines left behind", h.Waiting(), len(h.lines))
		}
	})
}

func TestOneshotStandsInALineOfItsOwnAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{takes: time.Second, answer: instance}
		h, orphans := hall(a)
		x := enter(t, h, function("t", true), 30*time.Second)
		got := []*table.Instance{(<-x.Result).Instance}
		x.Again("p")
		got = append(got, (<-x.Result).Instance)
		x.Again("p", "q")
		_ = x.Leave()
		h.Close()
		if got[0] == got[1] || a.count() < 2 || len(*orphans) != 0 {
			t.Errorf("%v by %d questions, orphans %v", got, a.count(), *orphans)
		}
	})
}
