package heartbeat

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

const timeout = 90 * time.Second

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func function(tenant string, max uint32) *skipperpb.Function {
	return &skipperpb.Function{
		Namespace: "prod", Deployment: "echo", Tenant: tenant,
		Scale: &skipperpb.Scale{MaxInstances: max},
	}
}

func beat(tenant string, sent time.Time, n uint32, instances map[string]uint32) *skipperpb.Heartbeat {
	return &skipperpb.Heartbeat{
		Function: function(tenant, 1), Timestamp: timestamppb.New(sent),
		InFlightRequests: n, InFlightByInstance: instances,
	}
}

func message(id string, beats ...*skipperpb.Heartbeat) *skipperpb.HeartbeatRequest {
	return &skipperpb.HeartbeatRequest{RouterIp: "10.9.0.1", RouterId: id, Heartbeats: beats}
}

func keyOf(tenant string) fn.Key { return fn.KeyOf(function(tenant, 1)) }

func TestNewestTimestampPerRouterWins(t *testing.T) {
	tests := []struct {
		name string
		msgs []*skipperpb.HeartbeatRequest
		want uint64
	}{
		{"newer replaces", []*skipperpb.HeartbeatRequest{
			message("a", beat("t", start, 3, nil)), message("a", beat("t", start.Add(1), 5, nil)),
		}, 5},
		{"older is ignored", []*skipperpb.HeartbeatRequest{
			message("a", beat("t", start, 3, nil)), message("a", beat("t", start.Add(-1), 5, nil)),
		}, 3},
		{"the same twice counts once", []*skipperpb.HeartbeatRequest{
			message("a", beat("t", start, 3, nil)), message("a", beat("t", start, 3, nil)),
		}, 3},
		{"routers add up", []*skipperpb.HeartbeatRequest{
			message("a", beat("t", start, 3, nil)), message("b", beat("t", start.Add(-time.Hour), 4, nil)),
		}, 7},
		{"without router_id the IP is the identity", []*skipperpb.HeartbeatRequest{
			message("", beat("t", start, 3, nil)), message("", beat("t", start.Add(1), 4, nil)),
		}, 4},
		{"functions are apart", []*skipperpb.HeartbeatRequest{
			message("a", beat("t", start, 3, nil), beat("u", start, 9, nil)),
		}, 3},
		{"without any identity refused", []*skipperpb.HeartbeatRequest{
			{Heartbeats: []*skipperpb.Heartbeat{beat("t", start, 3, nil)}},
		}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := NewStore(timeout, Limits{})
			for _, m := range tt.msgs {
				s.Record(m, start)
			}
			if got := s.InFlight(keyOf("t"), start); got != tt.want {
				t.Errorf("InFlight = %d, want %d", got, tt.want)
			}
		})
	}
}

func TestExpiryCountsFromReceipt(t *testing.T) {
	s := NewStore(timeout, Limits{})
	s.Record(message("fast", beat("t", start.Add(time.Hour), 1, nil)), start)
	if !s.Active(keyOf("t"), start.Add(timeout)) {
		t.Error("gone before the timeout")
	}
	if s.Active(keyOf("t"), start.Add(timeout+1)) {
		t.Error("a clock that is fast keeps the function alive")
	}
	// The clock was put right: after the timeout the router is heard again.
	later := start.Add(timeout + 1)
	if out := s.Record(message("fast", beat("t", later, 2, nil)), later); out.Accepted != 1 {
		t.Errorf("outcome %+v, want accepted", out)
	}
}

func TestGoodbyeForgetsARouter(t *testing.T) {
	s := NewStore(timeout, Limits{})
	s.Record(message("a", beat("t", start, 1, nil), beat("u", start, 1, nil)), start)
	s.Record(message("b", beat("t", start, 4, nil)), start)
	s.Record(&skipperpb.HeartbeatRequest{RouterIp: "10.9.0.1", RouterId: "a", Goodbye: true}, start)
	if n, active := s.InFlight(keyOf("t"), start), s.Active(keyOf("u"), start); n != 4 || active {
		t.Errorf("after a's goodbye: %d in flight, u active %v, want 4, false", n, active)
	}
	if !s.Departed("a") || s.Departed("b") {
		t.Error("who has departed is not a alone")
	}
	if out := s.Record(message("a", beat("t", start.Add(1), 9, nil)), start); out.Refused != 1 {
		t.Errorf("late message: %+v, want it refused", out)
	}
	byIP := &skipperpb.HeartbeatRequest{RouterIp: "10.9.0.2", Goodbye: true}
	s.Record(byIP, start)
	if out := s.Record(&skipperpb.HeartbeatRequest{RouterIp: "10.9.0.2", Heartbeats: []*skipperpb.Heartbeat{beat("t", start, 1, nil)}}, start); out.Accepted != 1 {
		t.Errorf("router known by IP came back: %+v, want accepted", out)
	}
}

func TestInFlightOfIsKnownOnlyIfAccountedFor(t *testing.T) {
	s := NewStore(timeout, Limits{})
	k := keyOf("t")
	if n, known := s.InFlightOf(k, "pod-1", start); n != 0 || !known {
		t.Errorf("without reports: %d, %v, want 0, true", n, known)
	}
	s.Record(message("a", beat("t", start, 3, map[string]uint32{"pod-1": 2, "pod-2": 1})), start)
	s.Record(message("b", beat("t", start, 1, map[string]uint32{"pod-1": 1})), start)
	if n, known := s.InFlightOf(k, "pod-1", start); n != 3 || !known {
		t.Errorf("pod-1: %d, %v, want 3, true", n, known)
	}
	if n, known := s.InFlightOf(k, "pod-3", start); n != 0 || !known {
		t.Errorf("pod-3: %d, %v, want 0, true", n, known)
	}
	s.Record(message("plain", beat("t", start, 2, nil)), start)
	if _, known := s.InFlightOf(k, "pod-3", start); known {
		t.Error("known although a router does not say where its requests are")
	}
	if at, ok := s.Named(k, "pod-2", start.Add(time.Second)); !ok || !at.Equal(start) {
		t.Errorf("Named(pod-2) = %v, %v, want %v", at, ok, start)
	}
	if _, ok := s.Named(k, "pod-2", start.Add(timeout+1)); ok {
		t.Error("named by an expired report")
	}
}

func TestForget(t *testing.T) {
	s := NewStore(timeout, Limits{})
	s.Record(message("a", beat("t", start, 3, nil), beat("u", start, 1, nil)), start)
	s.Forget(keyOf("t"))
	if s.Active(keyOf("t"), start) || !s.Active(keyOf("u"), start) {
		t.Error("Forget dropped the wrong function")
	}
	s.Forget(keyOf("u"))
	if n := s.Routers(); n != 0 {
		t.Errorf("%d routers left, want none", n)
	}
}

// A router whose clock is set back is heard all the time.
func TestClockOfARouterIsSetBack(t *testing.T) {
	for _, back := range []time.Duration{time.Second, 20 * time.Second, time.Minute, 24 * time.Hour} {
		s, now := NewStore(timeout, Limits{}), start
		for step := range 60 {
			sent := now
			if step >= 10 {
				sent = now.Add(-back)
			}
			s.Record(message("a", beat("t", sent, uint32(step), nil)), now)
			now = now.Add(5 * time.Second)
			if !s.Active(keyOf("t"), now) {
				t.Fatalf("set back by %s: the function counts as unused at step %d", back, step)
			}
		}
		if n := s.InFlight(keyOf("t"), now); n != 59 {
			t.Errorf("set back by %s: %d in flight, want the newest", back, n)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	s := NewStore(timeout, Limits{Routers: 3, FunctionsPerRouter: 5, InstancesPerReport: 2})
	now := start
	for r := range 10 {
		for f := range 20 {
			s.Record(message(fmt.Sprint(r), beat(fmt.Sprint("t", f), now, 1, nil)), now)
		}
		s.Record(&skipperpb.HeartbeatRequest{RouterId: fmt.Sprint("bye", r), Goodbye: true}, now)
	}
	if len(s.routers) != 3 || len(s.functions) != 5 || len(s.departed) > 3 {
		t.Errorf("%d routers, %d functions, %d goodbyes kept, want 3, 5, at most 3", len(s.routers), len(s.functions), len(s.departed))
	}
	out := s.Record(message("0", beat("t0", now.Add(1), 3, map[string]uint32{"a": 1, "b": 1, "c": 1})), now)
	if n, known := s.InFlightOf(keyOf("t0"), "a", now); out.Accepted != 1 || n != 0 || known {
		t.Errorf("report with too many instances: %+v, %d in flight, known %v; want it taken without them", out, n, known)
	}
	now = now.Add(2 * timeout)
	s.Record(message("late", beat("z", now, 1, nil)), now)
	if len(s.routers) != 1 || len(s.functions) != 1 || len(s.departed) != 0 {
		t.Errorf("expired state kept: %d routers, %d functions, %d goodbyes", len(s.routers), len(s.functions), len(s.departed))
	}
}

func TestEqualFunctionsShareMemory(t *testing.T) {
	s := NewStore(timeout, Limits{})
	s.Record(message("a", beat("t", start, 1, nil)), start)
	s.Record(message("b", beat("t", start, 1, nil)), start)
	reports := s.functions[keyOf("t")]
	if reports["a"].function != reports["b"].function {
		t.Error("two copies of one function")
	}
}

func TestStatesAreSortedAndLive(t *testing.T) {
	s := NewStore(timeout, Limits{})
	for i, ip := range []string{"10.9.0.3", "10.9.0.1", "10.9.0.2"} {
		m := message("", beat("t", start, uint32(i), nil))
		m.RouterIp = ip
		s.Record(m, start.Add(time.Duration(i)*time.Minute))
	}
	var got []string
	for _, st := range s.States(keyOf("t"), start.Add(2*time.Minute)) {
		got = append(got, fmt.Sprint(st.GetRouterIp(), " ", st.GetHeartbeat().GetInFlightRequests()))
	}
	if diff := cmp.Diff([]string{"10.9.0.1 1", "10.9.0.2 2"}, got); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

// naive keeps every accepted report in a list and looks at all of them.
type naive struct{ log []naiveReport }

type naiveReport struct {
	router, tenant string
	sent, received time.Time
	n              uint64
}

func (l *naive) newest(router, tenant string, now time.Time) *naiveReport {
	var out *naiveReport
	for i := range l.log {
		r := &l.log[i]
		if r.router == router && r.tenant == tenant && now.Sub(r.received) <= timeout && (out == nil || r.sent.After(out.sent)) {
			out = r
		}
	}
	return out
}

func (l *naive) record(r naiveReport) {
	if last := l.newest(r.router, r.tenant, r.received); last == nil || r.sent.After(last.sent) || last.sent.Sub(r.sent) > 30*time.Second {
		l.forget(func(o naiveReport) bool { return o.router == r.router && o.tenant == r.tenant })
		l.log = append(l.log, r)
	}
}

func (l *naive) forget(match func(naiveReport) bool) {
	var kept []naiveReport
	for _, r := range l.log {
		if !match(r) {
			kept = append(kept, r)
		}
	}
	l.log = kept
}

func (l *naive) inFlight(tenant string, now time.Time) (sum uint64) {
	for _, router := range []string{"0", "1", "2"} {
		if r := l.newest(router, tenant, now); r != nil {
			sum += r.n
		}
	}
	return sum
}

func TestMatchesNaiveStore(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		s, l, now := NewStore(timeout, Limits{}), &naive{}, start
		for range 200 {
			now = now.Add(time.Duration(rnd.IntN(30)) * time.Second)
			router, tenant := fmt.Sprint(rnd.IntN(3)), fmt.Sprint("t", rnd.IntN(3))
			switch rnd.IntN(12) {
			case 0:
				s.Record(&skipperpb.HeartbeatRequest{RouterIp: router, Goodbye: true}, now)
				l.forget(func(r naiveReport) bool { return r.router == router })
			case 1:
				s.Forget(keyOf(tenant))
				l.forget(func(r naiveReport) bool { return r.tenant == tenant })
			default:
				sent, n := now.Add(time.Duration(rnd.IntN(200)-100)*time.Second), uint64(rnd.IntN(9))
				m := message("", beat(tenant, sent, uint32(n), nil))
				m.RouterIp = router
				s.Record(m, now)
				l.record(naiveReport{router, tenant, sent, now, n})
			}
			for _, tn := range []string{"t0", "t1", "t2"} {
				if got, want := s.InFlight(keyOf(tn), now), l.inFlight(tn, now); got != want {
					t.Fatalf("seed %d: InFlight(%s) = %d, want %d", seed, tn, got, want)
				}
			}
		}
	}
}

func TestKnowsOnlyWhatWasReportedExactly(t *testing.T) {
	s := NewStore(timeout, Limits{})
	s.Record(message("a", beat("t", start, 1, nil)), start)
	if !s.Knows(keyOf("t"), function("t", 1)) {
		t.Error("does not know what was reported")
	}
	if s.Knows(keyOf("t"), function("t", 2)) || s.Knows(keyOf("u"), function("u", 1)) {
		t.Error("knows what was never reported")
	}
}

func TestReportsTellWhoseEnvoyAndWhenHeard(t *testing.T) {
	s := NewStore(timeout, Limits{})
	m := message("a", beat("t", start, 3, map[string]uint32{"p": 2}))
	m.EnvoyNodeId = "envoy-1"
	s.Record(m, start)
	other := message("a", beat("u", start, 0, nil))
	other.EnvoyNodeId = "envoy-1"
	s.Record(other, start.Add(time.Second))
	want := []Report{{
		Node: "envoy-1", Received: start, Heard: start.Add(time.Second), InFlight: 3, Instances: map[string]uint32{"p": 2},
	}}
	if diff := cmp.Diff(want, s.Reports(keyOf("t"), start.Add(time.Second))); diff != "" {
		t.Error(diff)
	}
	if got := s.Reports(keyOf("t"), start.Add(timeout+1)); len(got) != 0 {
		t.Errorf("expired reports %v", got)
	}
}
