package state

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

func function(tenant string) *skipperpb.Function {
	return &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: tenant}
}

func supervisor(tenant, by string) *skipperpb.SupervisorState {
	return &skipperpb.SupervisorState{Function: function(tenant), ReportedBy: by}
}

func event(ip string, sequence uint64, at int64) *skipperpb.Event {
	return &skipperpb.Event{ControllerIp: ip, Sequence: sequence, Timestamp: timestamppb.New(time.Unix(at, 0))}
}

func subscriptions(ips ...string) (out []*skipperpb.SubscriptionState) {
	for _, ip := range ips {
		out = append(out, &skipperpb.SubscriptionState{Type: "endpoint", ControllerIp: ip})
	}
	return out
}

func TestMerge(t *testing.T) {
	seconds := func(n int) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Second) }
	parts := map[string]*skipperpb.ClusterState{
		"10.0.0.2": {
			Replicas:    []*skipperpb.ReplicaState{{Ip: "10.0.0.2"}},
			Supervisors: []*skipperpb.SupervisorState{supervisor("b", "10.0.0.2"), supervisor("both", "10.0.0.2"), supervisor("nobody's", "10.0.0.2")},
			Events:      []*skipperpb.Event{event("10.0.0.2", 1, 5), event("10.0.0.2", 2, 7)},
			Pools:       []*skipperpb.PoolState{{Namespace: "prod", Deployment: "echo", WaitingCallers: 2}},
			Envoys:      []*skipperpb.EnvoyState{{NodeId: "e", Subscriptions: subscriptions("10.0.0.2"), LoadReportAge: seconds(1), LoadControllerIp: "10.0.0.2", InFlightRequests: 9}},
			Extprocs:    []*skipperpb.ExtprocState{{RouterId: "r", Connected: true, Subscriptions: subscriptions("10.0.0.2")}},
		},
		"10.0.0.1": {
			Replicas:    []*skipperpb.ReplicaState{{Ip: "10.0.0.1"}},
			Supervisors: []*skipperpb.SupervisorState{supervisor("a", "10.0.0.1"), supervisor("both", "10.0.0.1"), supervisor("nobody's", "10.0.0.1")},
			Events:      []*skipperpb.Event{event("10.0.0.1", 4, 5), event("10.0.0.1", 5, 6)},
			Pools:       []*skipperpb.PoolState{{Namespace: "prod", Deployment: "echo", WaitingCallers: 3}, {Namespace: "prod", Deployment: "a"}},
			Envoys:      []*skipperpb.EnvoyState{{NodeId: "e", Subscriptions: subscriptions("10.0.0.1")}, {NodeId: "e", LoadReportAge: seconds(8), LoadControllerIp: "10.0.0.1", InFlightRequests: 4}},
			Extprocs:    []*skipperpb.ExtprocState{{RouterId: "r", Subscriptions: subscriptions("10.0.0.1")}, {RouterId: "q"}},
		},
	}
	got := merge(parts, func(k fn.Key) string {
		if k.Tenant == "both" {
			return "10.0.0.2"
		}
		return ""
	})
	order(got)
	want := &skipperpb.ClusterState{
		Replicas: []*skipperpb.ReplicaState{{Ip: "10.0.0.1"}, {Ip: "10.0.0.2"}},
		Supervisors: []*skipperpb.SupervisorState{
			supervisor("a", "10.0.0.1"), supervisor("b", "10.0.0.2"), supervisor("both", "10.0.0.2"), supervisor("nobody's", "10.0.0.1"),
		},
		Events:   []*skipperpb.Event{event("10.0.0.1", 4, 5), event("10.0.0.2", 1, 5), event("10.0.0.1", 5, 6), event("10.0.0.2", 2, 7)},
		Pools:    []*skipperpb.PoolState{{Namespace: "prod", Deployment: "a"}, {Namespace: "prod", Deployment: "echo", WaitingCallers: 5}},
		Envoys:   []*skipperpb.EnvoyState{{NodeId: "e", Subscriptions: subscriptions("10.0.0.1", "10.0.0.2"), LoadReportAge: seconds(1), LoadControllerIp: "10.0.0.2", InFlightRequests: 9}},
		Extprocs: []*skipperpb.ExtprocState{{RouterId: "q"}, {RouterId: "r", Connected: true, Subscriptions: subscriptions("10.0.0.1", "10.0.0.2")}},
	}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// What is divided and joined again is the same, and no message is too large.
func TestSplitAndJoin(t *testing.T) {
	const limit = 2_000
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := &skipperpb.ClusterState{}
		for i := range r.IntN(40) {
			text := fmt.Sprintf("%0*d", 1+r.IntN(800), i)
			switch r.IntN(6) {
			case 0:
				s.Replicas = append(s.Replicas, &skipperpb.ReplicaState{Ip: text})
			case 1:
				s.Pools = append(s.Pools, &skipperpb.PoolState{Deployment: text})
			case 2:
				s.Envoys = append(s.Envoys, &skipperpb.EnvoyState{NodeId: text})
			case 3:
				s.Extprocs = append(s.Extprocs, &skipperpb.ExtprocState{RouterId: text})
			case 4:
				s.Events = append(s.Events, &skipperpb.Event{Message: text})
			case 5:
				s.Supervisors = append(s.Supervisors, supervisor(text, "10.0.0.1"))
			}
		}
		got := &skipperpb.ClusterState{}
		for _, part := range split(s, limit) {
			if n := proto.Size(part); n > limit {
				t.Fatalf("seed %d: a message of %d bytes", seed, n)
			}
			join(got, part)
		}
		if d := cmp.Diff(s, got, protocmp.Transform()); d != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, d)
		}
	}
}

func TestQuestion(t *testing.T) {
	ofPool := &skipperpb.Event{Function: &skipperpb.Function{Namespace: "prod", Deployment: "echo"}}
	for name, row := range map[string]struct {
		q    *skipperpb.GetClusterStateRequest
		e    *skipperpb.Event
		want bool
	}{
		"everything":             {nil, &skipperpb.Event{}, true},
		"the tenant":             {&skipperpb.GetClusterStateRequest{Tenant: "t"}, &skipperpb.Event{Function: function("t")}, true},
		"another tenant":         {&skipperpb.GetClusterStateRequest{Tenant: "t"}, &skipperpb.Event{Function: function("u")}, false},
		"the tenant's pool":      {&skipperpb.GetClusterStateRequest{Tenant: "t", Namespace: "prod"}, ofPool, true},
		"another pool":           {&skipperpb.GetClusterStateRequest{Deployment: "x"}, ofPool, false},
		"another namespace":      {&skipperpb.GetClusterStateRequest{Namespace: "x"}, &skipperpb.Event{Function: function("t")}, false},
		"an event of none":       {&skipperpb.GetClusterStateRequest{Namespace: "prod"}, &skipperpb.Event{}, false},
		"none, and any tenant's": {&skipperpb.GetClusterStateRequest{Tenant: "t"}, &skipperpb.Event{}, false},
	} {
		if got := asksEvent(row.q, row.e); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}
