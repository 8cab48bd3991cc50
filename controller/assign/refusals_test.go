package assign

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"skipper/proto/fn"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestBackoffDoublesUpToAMinute(t *testing.T) {
	r := NewRefusals(10)
	k := fn.Key{Tenant: "t1"}
	var got []time.Duration
	for range 12 {
		got = append(got, r.Refused(k, "500", noon).RetryAfter)
	}
	s := time.Second
	want := []time.Duration{0, 0, s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s, 60 * s, 60 * s}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("back-offs (-want +got):\n%s", diff)
	}
}

func TestBackoffStory(t *testing.T) {
	r := NewRefusals(10)
	k, other := fn.Key{Tenant: "t1"}, fn.Key{Tenant: "t2"}
	ms := time.Millisecond
	steps := []struct {
		at     time.Duration
		refuse bool
		accept bool
		want   Verdict // of Begin
	}{
		{at: 0, want: Verdict{Allowed: true}},
		{at: 0, refuse: true, want: Verdict{Allowed: true, InRow: 1, Reason: "500"}},
		{at: 0, refuse: true, want: Verdict{Allowed: true, InRow: 2, Reason: "500"}},
		{at: 0, refuse: true, want: Verdict{RetryAfter: time.Second, InRow: 3, Reason: "500"}},
		{at: 999 * ms, want: Verdict{RetryAfter: ms, InRow: 3, Reason: "500"}},
		{at: 1000 * ms, want: Verdict{Allowed: true, InRow: 3, Reason: "500"}},        // the one probe
		{at: 1100 * ms, want: Verdict{RetryAfter: 900 * ms, InRow: 3, Reason: "500"}}, // no second one
		{at: 1200 * ms, refuse: true, want: Verdict{RetryAfter: 2 * time.Second, InRow: 4, Reason: "500"}},
		{at: 3200 * ms, want: Verdict{Allowed: true, InRow: 4, Reason: "500"}},
		{at: 3300 * ms, accept: true, want: Verdict{Allowed: true}},
	}
	for i, s := range steps {
		now := noon.Add(s.at)
		if s.refuse {
			r.Refused(k, "500", now)
		}
		if s.accept {
			r.Accepted(k)
		}
		got := r.Begin(k, now)
		if diff := cmp.Diff(s.want, got); diff != "" {
			t.Errorf("step %d at %s (-want +got):\n%s", i, s.at, diff)
		}
		if v := r.Begin(other, now); !v.Allowed {
			t.Errorf("step %d: another tenant is held up", i)
		}
		r.End(other)
		if got.Allowed {
			r.End(k)
		}
	}
}

func TestRefusalsAreBounded(t *testing.T) {
	r := NewRefusals(3)
	for i := range 10 {
		for range refusalsInRow {
			r.Refused(fn.Key{Tenant: fmt.Sprint(i)}, "500", noon)
		}
	}
	if n := r.functions.Len(); n != 3 {
		t.Errorf("%d functions are remembered, want 3", n)
	}
	if v := r.Begin(fn.Key{Tenant: "9"}, noon); v.Allowed {
		t.Error("the latest was forgotten")
	}
}

func TestUnprovenFunctionTriesFewPodsAtOnce(t *testing.T) {
	r, k := NewRefusals(10), fn.Key{Tenant: "t1"}
	begun := 0
	for r.Begin(k, noon).Allowed {
		begun++
	}
	v := r.Begin(k, noon)
	if begun != refusalsInRow || v.Freed == nil || v.RetryAfter != 0 {
		t.Fatalf("%d attempts at once and then %+v, want %d and to wait", begun, v, refusalsInRow)
	}
	r.Accepted(k)
	select {
	case <-v.Freed:
	default:
		t.Error("an acceptance does not wake those who wait")
	}
	for range 100 {
		if !r.Begin(k, noon).Allowed {
			t.Fatal("a proven function has to wait")
		}
	}
}

// ledger is a naive record of one function: what each caller knows, in a list.
type ledger struct {
	begun    int // attempts under way
	inRow    int
	accepted bool // since the last refusal
	until    time.Time
	spent    int // pods refused, or still to be, since the function was last proven
}

func (l *ledger) may(now time.Time) bool {
	if now.Before(l.until) {
		return false
	}
	return l.accepted || l.begun == 0 || l.begun+l.inRow < refusalsInRow
}

// TestRefusalsMatchTheLedger also counts what a function costs: callers in any
// number and order spend no more than three pods before it backs off.
func TestRefusalsMatchTheLedger(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r, k, l, now := NewRefusals(4), fn.Key{Tenant: "t1"}, ledger{}, noon
		for step := range 200 {
			now = now.Add(time.Duration(rnd.IntN(400)) * time.Millisecond)
			switch what := rnd.IntN(10); {
			case what < 6:
				v := r.Begin(k, now)
				if v.Allowed != l.may(now) {
					t.Fatalf("seed %d step %d: %+v with %+v", seed, step, v, l)
				}
				l.begin(v.Allowed, now)
			case l.begun > 0:
				l.end(r, k, what, now)
			}
			if !l.accepted && l.inRow < refusalsInRow && l.spent > refusalsInRow {
				t.Fatalf("seed %d step %d: %d pods before the back-off: %+v", seed, step, l.spent, l)
			}
		}
	}
}

func (l *ledger) begin(allowed bool, now time.Time) {
	if !allowed {
		return
	}
	l.begun++
	if l.spent++; l.inRow >= refusalsInRow {
		l.until = now.Add(backoffAfter(l.inRow))
	}
}

func (l *ledger) end(r *Refusals, k fn.Key, what int, now time.Time) {
	switch l.begun--; what {
	case 6:
		r.Accepted(k)
		*l = ledger{begun: l.begun, accepted: true}
	case 7: // there was no pod
		l.spent--
	default:
		r.Refused(k, "500", now)
		if l.accepted {
			l.spent = -l.begun // what a proven function has under way is not held against it
		}
		l.inRow, l.accepted = l.inRow+1, false
		if d := backoffAfter(l.inRow); d > 0 && now.Add(d).After(l.until) {
			l.until = now.Add(d)
		}
	}
	r.End(k)
}
