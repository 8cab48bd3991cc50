package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"skipper/cmd/skipper/internal/connect"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/identity"
	"skipper/proto/identity/issue"
)

// clock is the time of all that tests print.
var clock = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// controllers answer as ControllerService, each on a port of its own, over TLS.
type controllers struct {
	skipperpb.UnimplementedControllerServiceServer
	mu       sync.Mutex
	state    *skipperpb.ClusterState
	scaled   []*skipperpb.ScaleRequest
	released []*skipperpb.ReleaseInstanceRequest
	asked    []*skipperpb.GetClusterStateRequest
	fail     error
}

func (c *controllers) GetClusterState(_ context.Context, r *skipperpb.GetClusterStateRequest) (*skipperpb.GetClusterStateResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, r)
	return &skipperpb.GetClusterStateResponse{ClusterState: c.state}, c.fail
}

func (c *controllers) Scale(_ context.Context, r *skipperpb.ScaleRequest) (*skipperpb.ScaleResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scaled = append(c.scaled, r)
	return &skipperpb.ScaleResponse{Instances: c.state.GetSupervisors()[0].GetInstances()}, c.fail
}

func (c *controllers) ReleaseInstance(_ context.Context, r *skipperpb.ReleaseInstanceRequest) (*skipperpb.ReleaseInstanceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = append(c.released, r)
	return &skipperpb.ReleaseInstanceResponse{}, c.fail
}

// stage is a cluster that commands are run on.
type stage struct {
	*world
	*controllers
	kube  *fake.Clientset
	addrs map[string]string // of pods, by name
	dir   string            // certificates, a folder for each role
}

// Forward leads to what listens for the pod in the test.
func (g *stage) Forward(_ context.Context, _, name string, port uint16) (addr string, closed func(), err error) {
	addr, ok := g.addrs[name]
	if !ok {
		return "", nil, fmt.Errorf("forward port %d of pod %s: lost connection", port, name)
	}
	return addr, func() {}, nil
}

// newStage serves one controller, and has objects beside what each cluster has.
func newStage(t *testing.T, objects ...runtime.Object) *stage {
	t.Helper()
	g := &stage{controllers: &controllers{state: clusterState()}, addrs: map[string]string{}, dir: t.TempDir()}
	if _, err := run(t, "tls", "issue", "--dir", g.dir); err != nil {
		t.Fatal(err)
	}
	operator := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "skipper-system", Name: "skipper-tls-operator"}, Data: map[string][]byte{}}
	for _, name := range []string{"tls.crt", "tls.key", "ca.crt"} {
		operator.Data[name] = []byte(read(t, g.dir, "operator", name))
	}
	g.kube = fake.NewClientset(append(objects, operator, controllerPod("controller-a", "10.0.0.1"))...)
	g.addrs["controller-a"] = g.serve(t, g.controllers)
	g.world = &world{
		now: func() time.Time { return clock }, getenv: func(string) string { return "" },
		open: func(o connect.Options) (*connect.Cluster, error) {
			return &connect.Cluster{Options: o, Kube: g.kube, Forward: g, Clock: func(context.Context) (time.Time, error) { return clock, nil }}, nil
		},
	}
	return g
}

// serve listens as a controller with its certificate.
func (g *stage) serve(t *testing.T, c skipperpb.ControllerServiceServer) string {
	t.Helper()
	i, err := identity.Open(identity.Options{Role: identity.Controller, Files: filesOf(g.dir, identity.Controller)})
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(i.Server(nil)))
	skipperpb.RegisterControllerServiceServer(server, c)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return l.Addr().String()
}

// run executes a command on the stage; remarks come with the output.
func (g *stage) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return g.runWith(t, "", args...)
}

func (g *stage) runWith(t *testing.T, in string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newRoot(g.world)
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// golden compares with testdata/name, or rewrites it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs, run with -update if that is meant (-want +got):\n%s", path, d)
	}
}

func controllerPod(name, ip string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "skipper-system", Name: name, Labels: map[string]string{"app.kubernetes.io/name": "skipper-controller"}},
		Spec: corev1.PodSpec{
			ServiceAccountName: "skipper-controller",
			Containers:         []corev1.Container{{Name: "controller", Env: []corev1.EnvVar{{Name: "SKIPPER_FUNCTION_NAMESPACES", Value: "prod"}}}},
		},
		Status: corev1.PodStatus{PodIP: ip, Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

func before(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(clock.Add(-d)) }

func function(tenant string) *skipperpb.Function {
	return &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: tenant, Metadata: "v2", Scale: &skipperpb.Scale{MinInstances: 1, MaxInstances: 4, TargetInFlightRequests: 10}}
}

// clusterState has a function that is well, one that starts, and what may be odd.
func clusterState() *skipperpb.ClusterState {
	acme, zenith := function("acme"), function("zenith")
	zenith.Oneshot = true
	return &skipperpb.ClusterState{
		PodIp: "10.0.0.1", StartedAt: before(time.Hour), ObservedAt: before(0), ControllerIps: []string{"10.0.0.1"},
		Supervisors: []*skipperpb.SupervisorState{
			{
				Function: acme, ResponsibleControllerIp: "10.0.0.1", ReportedBy: "10.0.0.1", ActiveReplicaSet: "echo-7d9f", InFlightRequests: 17,
				Instances: []*skipperpb.Instance{
					{
						Function: acme, Name: "echo-1", Uid: "uid-1", Addr: "10.1.0.1:8080", ReplicaSet: "echo-7d9f", AssignedAt: before(10 * time.Minute), ReadyAt: before(10*time.Minute - time.Second),
						State: skipperpb.InstanceState_INSTANCE_STATE_READY, CpuUsageMilli: 120, MemoryUsageMib: 34, InFlightRequests: 12, Cluster: "http1-007",
					},
					{Function: acme, Name: "echo-2", Uid: "uid-2", Addr: "10.1.0.2:8080", AssignedAt: before(time.Hour), ReadyAt: before(time.Hour), DrainingAt: before(3 * time.Second), State: skipperpb.InstanceState_INSTANCE_STATE_DRAINING, InFlightRequests: 5, InFlightUnknown: true},
					{Function: acme, Name: "echo-3", Uid: "uid-3", AssignedAt: before(40 * time.Second), State: skipperpb.InstanceState_INSTANCE_STATE_ASSIGNED, Problem: "annotation skipper/port is \"x\": set it"},
				},
				RouterHeartbeats: []*skipperpb.HeartbeatState{
					{RouterIp: "10.2.0.1", Heartbeat: &skipperpb.Heartbeat{Function: acme, Timestamp: before(4 * time.Second), InFlightRequests: 12}},
					{RouterIp: "10.2.0.2", Heartbeat: &skipperpb.Heartbeat{Function: acme, Timestamp: before(time.Second), InFlightRequests: 5}},
				},
				Decision: &skipperpb.ScaleDecision{
					DesiredInstances: 2, RecommendedInstances: 2, UnclampedInstances: 2, Reason: skipperpb.ScaleReason_SCALE_REASON_IN_FLIGHT_REQUESTS,
					Message: "17 requests at 10 each", DecidedAt: before(9 * time.Second),
				},
			},
			{Function: zenith, ResponsibleControllerIp: "10.0.0.2", ReportedBy: "10.0.0.1"},
		},
		Events: []*skipperpb.Event{
			{Timestamp: before(time.Hour), Function: acme, Type: skipperpb.EventType_EVENT_TYPE_POD_ASSIGNED, Severity: skipperpb.EventSeverity_EVENT_SEVERITY_INFO, Message: "assigned", ControllerIp: "10.0.0.1", Sequence: 1, InstanceName: "echo-2"},
			{Timestamp: before(time.Minute), Function: acme, Type: skipperpb.EventType_EVENT_TYPE_ASSIGNMENT_REFUSED, Severity: skipperpb.EventSeverity_EVENT_SEVERITY_WARN, Message: "answered 500 \x1b[2J\nand a line", ControllerIp: "10.0.0.1", Sequence: 2, InstanceName: "echo-9"},
			{Timestamp: before(time.Second), Type: skipperpb.EventType_EVENT_TYPE_MISCONFIGURED, Severity: skipperpb.EventSeverity_EVENT_SEVERITY_WARN, Message: "no metrics API", ControllerIp: "10.0.0.1", Sequence: 3},
		},
		Replicas: []*skipperpb.ReplicaState{
			{Ip: "10.0.0.1", StartedAt: before(time.Hour), Synced: true, RingMembers: []string{"10.0.0.1"}, ViewAge: durationpb.New(time.Second)},
		},
	}
}

// functionPod is how an instance looks in Kubernetes.
func functionPod(name, tenant string, f *skipperpb.Function) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: name, UID: "uid-of-" + "pod", Labels: map[string]string{pool.LabelDeployment: "echo", pool.LabelTenant: tenant},
			Annotations: map[string]string{
				pool.AnnotationTenant: tenant, pool.AnnotationFunction: string(fn.Marshal(f)),
				pool.AnnotationAssignedAt: pool.FormatTime(clock.Add(-time.Minute)), pool.AnnotationReadyAt: pool.FormatTime(clock.Add(-time.Minute)),
			},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "echo", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}},
		Status: corev1.PodStatus{
			PodIP: "10.1.0.1", Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

// A caller without the operator's certificate is refused on the stage as it is
// by real controllers, or the tests would show nothing of credentials.
func TestTheStageDemandsACertificate(t *testing.T) {
	t.Parallel()
	g := newStage(t)
	if _, err := g.run(t, "functions", "--insecure-plaintext"); status.Code(err) != codes.Unavailable && err == nil {
		t.Errorf("error is %v", err)
	}
	other, err := issue.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := other.Issue(issue.Request{Role: identity.Operator}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key, "ca.crt": other.Cert} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := g.run(t, "functions", "--tls-dir", dir); err == nil {
		t.Errorf("a stranger was told %q", out)
	}
	if _, err := g.run(t, "functions", "--tls-dir", filepath.Join(g.dir, "operator"), "--controller", g.addrs["controller-a"]); err != nil {
		t.Error(err)
	}
	if got := len(g.asked); got != 1 {
		t.Errorf("%d questions came through, want that of the operator", got)
	}
	if d := proto.Equal(g.asked[0], &skipperpb.GetClusterStateRequest{}); !d {
		t.Errorf("asked %v", g.asked[0])
	}
}
