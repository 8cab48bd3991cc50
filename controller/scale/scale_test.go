package scale

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	skipperpb "skipper/proto"
)

const (
	none    = skipperpb.ScaleReason_SCALE_REASON_UNSPECIFIED
	flight  = skipperpb.ScaleReason_SCALE_REASON_IN_FLIGHT_REQUESTS
	timeout = skipperpb.ScaleReason_SCALE_REASON_HEARTBEAT_TIMEOUT
	noReady = skipperpb.ScaleReason_SCALE_REASON_NO_READY_INSTANCES
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

func old() Policy {
	return Policy{
		HeartbeatTimeout: 90 * time.Second, Stabilization: 90 * time.Second, StartedAt: ago(time.Hour),
		Tolerance: 0.1, InitialReadiness: 30 * time.Second,
	}
}

func bounds(lo, hi, target uint32) *skipperpb.Scale {
	return &skipperpb.Scale{MinInstances: lo, MaxInstances: hi, TargetInFlightRequests: target}
}

func TestDecide(t *testing.T) {
	tests := []struct {
		name                            string
		in                              Input
		desired, recommended, unclamped int
		reason                          skipperpb.ScaleReason
	}{
		{"never used", Input{Scale: bounds(0, 5, 0), Current: 2}, 0, 0, 0, timeout},
		{"unused for longer than the timeout, minimum or not", Input{Scale: bounds(2, 5, 0), Current: 2, LastUsed: ago(91 * time.Second)}, 0, 0, 0, timeout},
		{"the window does not hold what is unused", Input{Scale: bounds(0, 5, 0), Current: 2, WindowMax: 5, LastUsed: ago(91 * time.Second)}, 0, 0, 0, timeout},
		{"used just within the timeout", Input{Scale: bounds(0, 5, 0), Current: 1, LastUsed: ago(90 * time.Second)}, 1, 1, 1, none},
		{"used, no instance yet", Input{Scale: bounds(0, 5, 0), LastUsed: ago(0)}, 1, 1, 1, noReady},
		{"minimum", Input{Scale: bounds(3, 5, 0), Current: 1, LastUsed: ago(0)}, 3, 3, 1, none},
		{"101 in flight at 50 each", Input{Scale: bounds(0, 10, 50), Current: 2, InFlight: 101, LastUsed: ago(0)}, 3, 3, 3, flight},
		{"100 in flight at 50 each", Input{Scale: bounds(0, 10, 50), Current: 2, InFlight: 100, LastUsed: ago(0)}, 2, 2, 2, flight},
		{"no target, not scaled on it", Input{Scale: bounds(0, 10, 0), Current: 1, InFlight: 1000, LastUsed: ago(0)}, 1, 1, 1, none},
		{"maximum, the wish is kept for the record", Input{Scale: bounds(0, 4, 10), Current: 2, InFlight: 95, LastUsed: ago(0)}, 4, 4, 10, flight},
		{"window holds a downscale", Input{Scale: bounds(0, 10, 10), Current: 6, InFlight: 11, WindowMax: 5, LastUsed: ago(0)}, 5, 2, 2, flight},
		{"window never above the present count", Input{Scale: bounds(0, 10, 10), Current: 3, InFlight: 11, WindowMax: 9, LastUsed: ago(0)}, 3, 2, 2, flight},
		{"window does not hold an upscale", Input{Scale: bounds(0, 10, 10), Current: 3, InFlight: 61, WindowMax: 4, LastUsed: ago(0)}, 7, 7, 7, flight},
		{"above a lowered maximum", Input{Scale: bounds(0, 2, 0), Current: 4, LastUsed: ago(0)}, 1, 1, 1, none},
		{"oneshot is not scaled", Input{Scale: bounds(0, 5, 0), Oneshot: true, Current: 7}, 7, 7, 7, none},
		{"no configuration known", Input{Current: 1, LastUsed: ago(0)}, 1, 1, 1, none},
		{"absurd number of requests", Input{Scale: bounds(0, 7, 1), Current: 1, InFlight: 1 << 63, LastUsed: ago(0)}, 7, 7, most, flight},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Decide(old(), tt.in, now)
			if got.Desired != tt.desired || got.Recommended != tt.recommended || got.Unclamped != tt.unclamped || got.Reason != tt.reason {
				t.Errorf("Decide = %+v, want %d (%d, %d) by %s", got, tt.desired, tt.recommended, tt.unclamped, tt.reason)
			}
			if got.Why == "" {
				t.Error("no reason in words")
			}
		})
	}
}

func TestNewControllerDoesNotDownscale(t *testing.T) {
	tests := []struct {
		name          string
		heartbeat     time.Duration
		stabilization time.Duration
		running       time.Duration
		current, want int
	}{
		{"just started", 90 * time.Second, 90 * time.Second, 0, 3, 3},
		{"end of the protection", 90 * time.Second, 90 * time.Second, 90 * time.Second, 3, 0},
		{"the longer counts: stabilisation", time.Second, 60 * time.Second, 59 * time.Second, 3, 3},
		{"the longer counts: heartbeat", 60 * time.Second, time.Second, 59 * time.Second, 3, 3},
		{"nothing to protect", 90 * time.Second, 90 * time.Second, 0, 0, 0},
	}
	for _, tt := range tests {
		p := Policy{HeartbeatTimeout: tt.heartbeat, Stabilization: tt.stabilization, StartedAt: ago(tt.running)}
		got := Decide(p, Input{Scale: bounds(0, 5, 0), Current: tt.current}, now)
		if got.Desired != tt.want {
			t.Errorf("%s: desired %d, want %d (%s)", tt.name, got.Desired, tt.want, got.Why)
		}
	}
	up := Decide(Policy{HeartbeatTimeout: time.Minute, StartedAt: now}, Input{Scale: bounds(2, 5, 0), Current: 1, LastUsed: now}, now)
	if up.Desired != 2 {
		t.Errorf("just started: desired %d, want 2: only downscales are held", up.Desired)
	}
}

func TestWhyNamesTheNumbers(t *testing.T) {
	got := Decide(old(), Input{Scale: bounds(0, 4, 10), Current: 6, InFlight: 95, WindowMax: 5, LastUsed: ago(0)}, now)
	for _, want := range []string{"95 requests in flight", "target 10", "wants 10", "[0, 4]", "held at 5"} {
		if !strings.Contains(got.Why, want) {
			t.Errorf("Why %q does not name %q", got.Why, want)
		}
	}
}

func TestUnusedSaysWhatWasLastHeard(t *testing.T) {
	hour, minute, second := ago(time.Hour), ago(2*time.Minute), ago(time.Second)
	for _, row := range []struct {
		name  string
		trace Trace
		want  string
	}{
		{"used, then silent", Trace{Heartbeat: minute, Since: hour, Assigned: hour}, "the last heartbeat was at 2026-01-02T03:02:05Z, the last assignment at 2026-01-02T02:04:05Z; timeout 1m30s"},
		{"never heard of since the start", Trace{Since: minute, Assigned: hour}, "no heartbeat since this controller began to listen for the function at 2026-01-02T03:02:05Z, the last assignment at 2026-01-02T02:04:05Z; timeout 1m30s"},
		{"nor assigned, as far as is known", Trace{Since: minute}, "no heartbeat since this controller began to listen for the function at 2026-01-02T03:02:05Z, no assignment known; timeout 1m30s"},
		{"a router that has said goodbye", Trace{Heartbeat: second, Since: hour, Assigned: hour}, "no router reports it any more, the last heartbeat was at 2026-01-02T03:04:04Z, the last assignment at 2026-01-02T02:04:05Z; timeout 1m30s"},
		{"nothing known", Trace{}, "no heartbeat known, no assignment known; timeout 1m30s"},
	} {
		got := Decide(old(), Input{Scale: bounds(0, 5, 0), Current: 2, Trace: row.trace}, now)
		if got.Why != row.want || got.Desired != 0 {
			t.Errorf("%s: %d, %q, want 0, %q", row.name, got.Desired, got.Why, row.want)
		}
	}
}

// TestTraceDecidesNothing: the words' times are older, or younger, than the use
// that counts.
func TestTraceDecidesNothing(t *testing.T) {
	for _, used := range []time.Time{{}, ago(0), ago(90 * time.Second), ago(time.Hour)} {
		for _, trace := range []Trace{{}, {Heartbeat: now, Assigned: now}, {Heartbeat: ago(time.Hour), Since: ago(time.Hour)}} {
			in := Input{Scale: bounds(1, 5, 0), Current: 2, LastUsed: used}
			want := Decide(old(), in, now)
			in.Trace = trace
			got := Decide(old(), in, now)
			got.Why = want.Why
			if got != want {
				t.Errorf("used %s, %+v: %+v, want %+v", used, trace, got, want)
			}
		}
	}
}

func TestWindowMatchesNaiveMaximum(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 9))
	for range 500 {
		var w Window
		var log []entry
		at := now
		for range 60 {
			at = at.Add(time.Duration(rnd.IntN(20)) * time.Second)
			v := rnd.IntN(10)
			w.Add(at, v, 90*time.Second)
			log = append(log, entry{at, v})
			want := 0
			for _, e := range log {
				if at.Sub(e.at) <= 90*time.Second {
					want = max(want, e.value)
				}
			}
			if got := w.Max(at, 90*time.Second); got != want {
				t.Fatalf("Max = %d, want %d of %v", got, want, log)
			}
		}
	}
}

func TestWindowIsBoundedAndErrsToHolding(t *testing.T) {
	var w Window
	for v := 1000; v > 0; v-- {
		w.Add(now, v, time.Minute)
	}
	if len(w.entries) > maxEntries || w.Max(now, time.Minute) != 1000 {
		t.Errorf("%d entries, maximum %d, want at most %d and 1000", len(w.entries), w.Max(now, time.Minute), maxEntries)
	}
	if got := w.Max(now.Add(time.Hour), time.Minute); got != 0 {
		t.Errorf("Max = %d after an hour, want 0", got)
	}
}
