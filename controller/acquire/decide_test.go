package acquire

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
)

func testFunction(tenant string) *skipperpb.Function {
	return &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: tenant, Scale: &skipperpb.Scale{MaxInstances: 2}}
}

func TestDecide(t *testing.T) {
	f := testFunction("t1")
	ready := pool.Pod{
		Name: "ready", IP: "10.0.0.1", Port: 80, Protocol: xds.HTTP1, Ready: true, Phase: corev1.PodRunning,
		Marked: true, Function: f, Key: fn.KeyOf(f), ReadyAt: noon,
	}
	bad, unready, draining, assigned := ready, ready, ready, ready
	bad.Name = "bad"
	unready.Ready = false
	draining.Draining = true
	assigned.ReadyAt = ready.CreatedAt
	tests := []struct {
		name string
		pods []pool.Pod
		want Step
		pick int // how many pods to choose from
	}{
		{"cold", nil, Assign, 0},
		{"ready", []pool.Pod{ready, assigned}, Use, 1},
		{"never the excluded one beside another", []pool.Pod{bad, ready}, Use, 1},
		{"only excluded, room for more", []pool.Pod{bad}, Assign, 0},
		{"only excluded, no room", []pool.Pod{bad, bad}, Use, 2},
		{"excluded and unready, no room", []pool.Pod{bad, unready}, Use, 1},
		{"only draining", []pool.Pod{draining, draining, draining}, Assign, 0},
		{"full, none ready", []pool.Pod{assigned, unready}, Await, 0},
		{"one assigned, room", []pool.Pod{assigned}, Assign, 0},
	}
	for _, tt := range tests {
		got := Decide(tt.pods, []string{"bad", "x"}, 2)
		if got.Step != tt.want || len(got.Pods) != tt.pick {
			t.Errorf("%s: step %d with %d pods (%s), want %d with %d", tt.name, got.Step, len(got.Pods), got.Reason, tt.want, tt.pick)
		}
		for _, p := range got.Pods {
			if !p.Routable() || p.Name == "bad" && tt.pods[len(tt.pods)-1].Routable() && tt.pick == 1 {
				t.Errorf("%s: %s is offered", tt.name, p.Name)
			}
		}
	}
}
