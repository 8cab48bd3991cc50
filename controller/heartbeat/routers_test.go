package heartbeat

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	skipperpb "skipper/proto"
)

func TestRouterListIsSortedAndLive(t *testing.T) {
	s, at := NewStore(time.Minute, Limits{}), time.Unix(1700000000, 0)
	beats := []*skipperpb.Heartbeat{{Function: &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "t"}}}
	s.Record(&skipperpb.HeartbeatRequest{RouterId: "b", RouterIp: "10.0.0.2", EnvoyNodeId: "e", Heartbeats: beats}, at)
	s.Record(&skipperpb.HeartbeatRequest{RouterIp: "10.0.0.1", Heartbeats: beats}, at.Add(time.Second))
	want := []Router{
		{ID: "10.0.0.1", IP: "10.0.0.1", Heard: at.Add(time.Second), Functions: 1},
		{ID: "b", IP: "10.0.0.2", Node: "e", Heard: at, Functions: 1},
	}
	if d := cmp.Diff(want, s.RouterList(at.Add(time.Minute))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(want[:1], s.RouterList(at.Add(time.Minute+time.Second))); d != "" {
		t.Errorf("one is silent for too long (-want +got):\n%s", d)
	}
}
