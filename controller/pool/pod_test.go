package pool

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func testFunction(tenant string) *skipperpb.Function {
	return &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: tenant, Scale: &skipperpb.Scale{MaxInstances: 3}}
}

// servingPod is a pod that is routable in every respect.
func servingPod() Pod {
	f := testFunction("t1")
	return Pod{
		Namespace: "prod", Name: "echo-1", UID: "u1", IP: "10.0.0.1", Port: 8080, Protocol: xds.HTTP1,
		Deployment: "echo", ReplicaSet: "echo-rs", Ready: true, Phase: corev1.PodRunning,
		Marked: true, Tenant: "t1", Function: f, Key: fn.KeyOf(f), AssignedAt: noon, ReadyAt: noon.Add(time.Second), Version: 7,
	}
}

func TestStateAndRoutable(t *testing.T) {
	tests := []struct {
		name     string
		change   Pod // fields to take over, see with
		fields   string
		want     State
		routable bool
	}{
		{"serving", Pod{}, "", Ready, true},
		{"unmarked", Pod{}, "Marked Function ReadyAt", Unassigned, false},
		{"no ready-at", Pod{}, "ReadyAt", Assigned, false},
		{"draining", Pod{Draining: true}, "Draining", Draining, false},
		{"draining before it accepted", Pod{Draining: true}, "Draining ReadyAt", Draining, false},
		{"deleting beats draining", Pod{Draining: true, Deleting: true}, "Draining Deleting", Terminating, false},
		{"failed", Pod{Phase: corev1.PodFailed}, "Phase", Dead, false},
		{"finished", Pod{Phase: corev1.PodSucceeded}, "Phase", Dead, false},
		{"evicted", Pod{Evicted: true}, "Evicted", Dead, false},
		{"deleting beats dead", Pod{Evicted: true, Deleting: true}, "Evicted Deleting", Terminating, false},
		{"not ready in Kubernetes", Pod{}, "Ready", Ready, false},
		{"no address", Pod{}, "IP", Ready, false},
		{"no port", Pod{}, "Port", Ready, false},
		{"no protocol", Pod{}, "Protocol", Ready, false},
		{"unreadable function", Pod{}, "Function", Ready, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := with(t, servingPod(), tt.change, tt.fields)
			if p.State() != tt.want || p.Routable() != tt.routable {
				t.Errorf("state %s routable %t, want %s %t", p.State(), p.Routable(), tt.want, tt.routable)
			}
		})
	}
}

func TestAddr(t *testing.T) {
	for want, p := range map[string]Pod{
		"10.0.0.1:80":  {IP: "10.0.0.1", Port: 80},
		"[fd00::1]:80": {IP: "fd00::1", Port: 80},
		"":             {IP: "10.0.0.1"},
	} {
		if got := p.Addr(); got != want {
			t.Errorf("Addr of %s port %d is %q, want %q", p.IP, p.Port, got, want)
		}
	}
}

func TestInstance(t *testing.T) {
	p := servingPod()
	p.Zone = "z1"
	got := Instance(p, 256)
	want := &skipperpb.Instance{
		Function: p.Function, Name: "echo-1", Addr: "10.0.0.1:8080", ReplicaSet: "echo-rs",
		AssignedAt: timestamppb.New(noon), ReadyAt: timestamppb.New(noon.Add(time.Second)),
		Uid: "u1", Cluster: xds.ClusterOf(xds.HTTP1, "u1", 256), Version: 7, Zone: "z1",
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("instance (-want +got):\n%s", diff)
	}
	if Instance(Pod{}, 256).GetReadyAt() != nil {
		t.Error("a pod that never accepted has a ready time")
	}
}

func TestSameIgnoresVersionAndFunctionPointer(t *testing.T) {
	a, b := servingPod(), servingPod()
	b.Version++
	if !same(a, b) {
		t.Error("pods that differ in version only are not the same")
	}
	b.Function = testFunction("t2")
	if same(a, b) {
		t.Error("pods with different functions are the same")
	}
}
