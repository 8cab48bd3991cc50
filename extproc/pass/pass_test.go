package pass

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"skipper/proto/reason"
)

var epoch = time.Unix(1000, 0)

func limits() Limits {
	return Limits{Passes: 6, Backoff: 100 * time.Millisecond, MaxBackoff: time.Second}
}

func uids(s ...string) []string { return s }

func TestDecide(t *testing.T) {
	tests := []struct {
		name  string
		state State
		left  time.Duration
		want  Decision
	}{
		{"unknown for the first time", State{Passes: 1, Unknown: 1, Present: "a", Usable: true, Known: uids("a", "b")}, time.Minute, Decision{Action: Same, Wait: 100 * time.Millisecond}},
		{"unknown for the third time", State{Passes: 3, Unknown: 3, Present: "a", Usable: true, Known: uids("a", "b")}, time.Minute, Decision{Action: Same, Wait: 400 * time.Millisecond}},
		{"unknown for too long, and there is another", State{Passes: 4, Unknown: 4, Present: "a", Usable: true, Known: uids("a", "b")}, time.Minute, Decision{Action: Other}},
		{"unknown for long, and there is no other", State{Passes: 5, Unknown: 5, Present: "a", Usable: true, Known: uids("a")}, time.Minute, Decision{Action: Same, Wait: time.Second}},
		{"unknown, little time left", State{Passes: 1, Unknown: 1, Present: "a", Usable: true}, 30 * time.Millisecond, Decision{Action: Same, Wait: 30 * time.Millisecond}},
		{"unknown, no time left", State{Passes: 1, Unknown: 1, Present: "a", Usable: true}, 0, Decision{Action: Refuse, Reason: reason.NoInstance}},
		{"unknown, no time left, and there is another", State{Passes: 1, Unknown: 1, Present: "a", Usable: true, Known: uids("b")}, 0, Decision{Action: Other}},
		{"unknown and gone from the table", State{Passes: 1, Unknown: 1, Present: "a", Known: uids("b")}, time.Minute, Decision{Action: Other}},
		{"unknown and gone from the table, the last one", State{Passes: 1, Unknown: 1, Present: "a"}, time.Minute, Decision{Action: Ask}},
		{"failed, and there is another", State{Cause: Failed, Passes: 1, Present: "a", Usable: true, Tried: uids("a"), Known: uids("a", "b")}, time.Minute, Decision{Action: Other}},
		{"failed, all were tried", State{Cause: Failed, Passes: 2, Present: "b", Usable: true, Tried: uids("a", "b"), Known: uids("a", "b")}, time.Minute, Decision{Action: Ask}},
		{"failed, all were tried, no time left", State{Cause: Failed, Passes: 2, Present: "b", Usable: true, Tried: uids("a", "b"), Known: uids("a", "b")}, -1, Decision{Action: Refuse, Reason: reason.ConnectFailed}},
		{"failed, no time left, and there is another", State{Cause: Failed, Passes: 2, Present: "b", Tried: uids("b"), Known: uids("a", "b")}, -1, Decision{Action: Other}},
		{"failed too often", State{Cause: Failed, Passes: 6, Present: "a", Tried: uids("a"), Known: uids("b")}, time.Minute, Decision{Action: Refuse, Reason: reason.ConnectFailed}},
		{"unknown too often", State{Passes: 6, Present: "a", Usable: true, Known: uids("a")}, time.Minute, Decision{Action: Refuse, Reason: reason.NoInstance}},
		{"a oneshot's pod failed", State{Cause: Failed, Passes: 1, Tried: uids("a")}, time.Minute, Decision{Action: Ask}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.state.Deadline = epoch.Add(tt.left)
			got := Decide(tt.state, limits(), epoch)
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(Decision{}, "Why")); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if got.Why == "" {
				t.Error("the decision has no reason")
			}
		})
	}
}

// naive decides by the rules one by one, each as a set of what is allowed.
func naive(s State, l Limits, now time.Time) Action {
	others := map[string]bool{}
	for _, u := range s.Known {
		others[u] = true
	}
	for _, u := range append([]string{s.Present}, s.Tried...) {
		delete(others, u)
	}
	inTime := now.Before(s.Deadline)
	if s.Passes >= l.Passes {
		return Refuse
	}
	if s.Cause == Unknown && s.Usable && inTime && (s.Unknown <= l.Passes/2 || len(others) == 0) {
		return Same
	}
	if len(others) > 0 {
		return Other
	}
	if inTime {
		return Ask
	}
	return Refuse
}

func TestDecideAgreesWithANaiveOne(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	some := func() (out []string) {
		for n := range 4 {
			if r.IntN(2) == 0 {
				out = append(out, fmt.Sprint(n))
			}
		}
		return out
	}
	for range 20_000 {
		s := State{
			Cause: Cause(r.IntN(2)), Passes: 1 + r.IntN(7), Unknown: r.IntN(7), Present: fmt.Sprint(r.IntN(4)), Usable: r.IntN(2) == 0,
			Tried: some(), Known: some(), Deadline: epoch.Add(time.Duration(r.IntN(4)-1) * time.Second),
		}
		got := Decide(s, limits(), epoch)
		if want := naive(s, limits(), epoch); got.Action != want {
			t.Fatalf("%+v: %s, want %s", s, got.Action, want)
		}
		if (got.Action == Refuse) != (got.Reason != "") || got.Wait < 0 || got.Wait > s.Deadline.Sub(epoch) && got.Wait > 0 {
			t.Fatalf("%+v: %+v", s, got)
		}
	}
}

func TestCauseOf(t *testing.T) {
	for text, want := range map[string]Cause{"": Unknown, "1": Unknown, "2": Failed, "3": Failed, "-2": Unknown, "x": Unknown, "99999999999": Unknown} {
		if got := CauseOf([]byte(text)); got != want {
			t.Errorf("CauseOf(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestPausesDoubleUpToTheBound(t *testing.T) {
	var got []time.Duration
	for n := range 6 {
		got = append(got, limits().Pause(n+1)/time.Millisecond)
	}
	if diff := cmp.Diff([]time.Duration{100, 200, 400, 800, 1000, 1000}, got); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
}
