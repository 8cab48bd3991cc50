package misfit

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"skipper/controller/heartbeat"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func claimed(name string, owned bool) pool.Pod {
	f := &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "t"}
	return pool.Pod{
		Namespace: "prod", Name: name, UID: "uid-" + name, Deployment: "echo", ReplicaSet: "echo-1", OwnedByReplicaSet: owned,
		Marked: true, Tenant: "t", Function: f, Key: fn.KeyOf(f),
	}
}

func TestTwins(t *testing.T) {
	now := time.Unix(1700000000, 0)
	router := func(id, ip, node string, ago time.Duration) heartbeat.Router {
		return heartbeat.Router{ID: id, IP: ip, Node: node, Heard: now.Add(-ago)}
	}
	for name, row := range map[string]struct {
		routers []heartbeat.Router
		want    map[string][]string
	}{
		"none": {nil, map[string][]string{}},
		"two at two addresses": {
			[]heartbeat.Router{router("b", "10.0.0.2", "e", 0), router("a", "10.0.0.1", "e", time.Second)},
			map[string][]string{"e": {"10.0.0.1", "10.0.0.2"}},
		},
		"restarted at one address": {[]heartbeat.Router{router("a", "10.0.0.1", "e", 0), router("b", "10.0.0.1", "e", time.Second)}, map[string][]string{}},
		"one is silent":            {[]heartbeat.Router{router("a", "10.0.0.1", "e", 0), router("b", "10.0.0.2", "e", 16*time.Second)}, map[string][]string{}},
		"two Envoys":               {[]heartbeat.Router{router("a", "10.0.0.1", "e", 0), router("b", "10.0.0.2", "f", 0)}, map[string][]string{}},
		"no Envoy named":           {[]heartbeat.Router{router("a", "10.0.0.1", "", 0), router("b", "10.0.0.2", "", 0)}, map[string][]string{}},
	} {
		if d := cmp.Diff(row.want, twins(row.routers, now)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestTwinsMustBeSeenTwice(t *testing.T) {
	both := map[string][]string{"e": {"10.0.0.1", "10.0.0.2"}}
	for name, row := range map[string]struct {
		before map[string][]string
		want   int
	}{
		"first look":      {nil, 0},
		"second look":     {both, 1},
		"others than now": {map[string][]string{"e": {"10.0.0.2", "10.0.0.3"}}, 0},
	} {
		if got := confirmed(row.before, both); len(got) != row.want {
			t.Errorf("%s: %v, want %d", name, got, row.want)
		}
	}
}

// story is a watcher over a view, in virtual time.
type story struct {
	*Watcher
	view     *pool.View
	registry *prometheus.Registry
	events   []*skipperpb.Event
	routers  func(now time.Time) []heartbeat.Router
	first    bool
}

// tell prepares the story, runs it, and then follows the plot.
func tell(t *testing.T, prepare, plot func(*story)) {
	synctest.Test(t, func(t *testing.T) {
		s := &story{view: pool.NewView(), registry: prometheus.NewRegistry(), first: true}
		s.routers = func(time.Time) []heartbeat.Router { return nil }
		s.Watcher = New(Config{
			Listen: s.view.Listen, Routers: func(now time.Time) []heartbeat.Router { return s.routers(now) },
			Event: func(e *skipperpb.Event) { s.events = append(s.events, e) }, Tells: func() bool { return s.first },
			Registerer: s.registry, Log: zap.NewNop(),
		})
		prepare(s)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		plot(s)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// pass lets time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// checkPoolSaid looks for one event, of the pool's problem, which has the words.
func (s *story) checkPoolSaid(t *testing.T, words ...string) {
	t.Helper()
	if len(s.events) != 1 {
		t.Fatalf("%d events, want one", len(s.events))
	}
	e, problem := s.events[0], s.Pools()[pool.Name{Namespace: "prod", Deployment: "echo"}]
	if e.GetType() != skipperpb.EventType_EVENT_TYPE_MISCONFIGURED || e.GetFunction().GetDeployment() != "echo" || e.GetMessage() != problem {
		t.Errorf("event %v, problem %q", e, problem)
	}
	for _, word := range words {
		if !strings.Contains(problem, word) {
			t.Errorf("problem %q says nothing of %s", problem, word)
		}
	}
}

func TestPoolThatKeepsItsPodsIsSaidOnce(t *testing.T) {
	tell(t, func(*story) {}, func(s *story) {
		s.view.Apply(claimed("echo-b", true))
		s.view.Apply(claimed("echo-a", true))
		s.view.Apply(claimed("echo-c", false)) // let go of, as it should be
		pass(50 * time.Second)
		if len(s.events) > 0 || len(s.Pools()) > 0 {
			t.Fatalf("said after 50 s already: %v", s.events)
		}
		pass(5 * time.Minute)
		s.checkPoolSaid(t, "echo-a", "skipper/tenant", "echo-1")
		if n := s.metric(t, "pool_selector"); n != 1 {
			t.Errorf("metric is %v, want 1", n)
		}
		for _, name := range []string{"echo-a", "echo-b"} {
			s.view.Apply(claimed(name, false))
		}
		pass(time.Minute)
		if len(s.Pools()) > 0 || s.metric(t, "pool_selector") != 0 {
			t.Errorf("still wrong: %v", s.Pools())
		}
	})
}

func TestGatewaysWithOneNodeIDAreSaidByOneReplica(t *testing.T) {
	for first, want := range map[bool]int{true: 1, false: 0} {
		tell(t, func(s *story) {
			s.first = first
			s.routers = func(now time.Time) []heartbeat.Router {
				return []heartbeat.Router{{ID: "a", IP: "10.0.0.1", Node: "e", Heard: now}, {ID: "b", IP: "10.0.0.2", Node: "e", Heard: now}}
			}
		}, func(s *story) {
			pass(2 * time.Minute)
			if len(s.events) != want {
				t.Errorf("%d events where the replica is first: %v, want %d", len(s.events), first, want)
			}
			if p := s.Nodes()["e"]; !strings.Contains(p, "10.0.0.1 and 10.0.0.2") || s.metric(t, "envoy_node_id") != 1 {
				t.Errorf("problem %q", p)
			}
		})
	}
}

// metric is the gauge's value for one kind.
func (s *story) metric(t *testing.T, kind string) float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[0].GetMetric() {
		if m.GetLabel()[0].GetValue() == kind {
			return m.GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric of kind %s", kind)
	return 0
}
