package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"

	"skipper/controller/acquire"
	"skipper/controller/forward"
	"skipper/controller/heartbeat"
	"skipper/controller/pool"
	"skipper/controller/retire"
	"skipper/controller/ring"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/reason"
	"skipper/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parts are the server's neighbours; each does what the test says.
type parts struct {
	mu       sync.Mutex
	acquire  func(context.Context, *skipperpb.Function) (pool.Pod, error)
	scale    func(int) ([]pool.Pod, error)
	retire   error
	touched  []string
	heard    []string
	retired  []string
	excluded []string

	api       map[string]pool.Pod // by name
	apiFails  error
	forwarded []string
}

func (p *parts) note(list *[]string, s string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*list = append(*list, s)
}

func (p *parts) GetOrAcquire(ctx context.Context, f *skipperpb.Function, exclude []string) (pool.Pod, error) {
	p.mu.Lock()
	p.excluded = exclude
	p.mu.Unlock()
	return p.acquire(ctx, f)
}

func (p *parts) Drain(_ context.Context, pod pool.Pod, _ string) error {
	p.note(&p.retired, "drain "+pod.UID)
	return p.retire
}

func (p *parts) Delete(_ context.Context, pod pool.Pod, _ string) error {
	p.note(&p.retired, "delete "+pod.UID)
	return p.retire
}
func (p *parts) DeleteSoon(pod pool.Pod, _ string) { p.note(&p.retired, "delete soon "+pod.UID) }

// live is what the API server has of pods.
func (p *parts) live(_ context.Context, _, name string) (pool.Pod, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pod, ok := p.api[name]
	return pod, ok, p.apiFails
}

// told wraps a Forwarder to note which heartbeats others are told of.
type told struct {
	*forward.Forwarder
	parts *parts
}

func (f told) Heartbeat(r *skipperpb.HeartbeatRequest) {
	f.parts.note(&f.parts.forwarded, fmt.Sprint(r.GetRouterIp(), " ", len(r.GetHeartbeats()), " ", r.GetForwardedFor()))
}

func (p *parts) Touch(f *skipperpb.Function) { p.note(&p.touched, f.GetTenant()) }
func (p *parts) Heard(f *skipperpb.Function) { p.note(&p.heard, f.GetTenant()) }

func (p *parts) Scale(_ context.Context, _ *skipperpb.Function, n int, _ string) ([]pool.Pod, error) {
	return p.scale(n)
}

func (p *parts) ClusterState(_ context.Context, q *skipperpb.GetClusterStateRequest) (*skipperpb.ClusterState, error) {
	return &skipperpb.ClusterState{PodIp: "of " + q.GetTenant()}, nil
}

type fixture struct {
	*parts
	client   skipperpb.ControllerServiceClient
	conn     *grpc.ClientConn
	server   *Server
	view     *pool.View
	members  *ring.Members
	registry *prometheus.Registry
}

// serve makes a server that is reached through a real connection.
func serve(t *testing.T) *fixture {
	t.Helper()
	x := &fixture{parts: &parts{}, view: pool.NewView(), registry: prometheus.NewRegistry()}
	members := ring.NewMembers(20 * time.Millisecond)
	members.Set("10.0.0.1")
	x.members = members
	counts := forward.NewMetrics(x.registry)
	peers := forward.NewPeers(forward.PeersConfig{Self: "10.0.0.1", Metrics: counts, Log: zap.NewNop()})
	t.Cleanup(peers.Close)
	forwarder := forward.New(forward.Config{
		Self: "10.0.0.1", Ring: members, Peers: peers, Serving: func() bool { return true }, Metrics: counts, Log: zap.NewNop(),
	})
	x.server = New(Options{
		Namespaces: []string{"prod"}, MaxInstancesLimit: 10, Shards: 4,
	}, Deps{
		Pods: x.view, State: x.parts, Heartbeats: heartbeat.NewStore(time.Minute, heartbeat.Limits{}),
		Acquirer: x.parts, Retirer: x.parts, Supervisors: x.parts, Forwarder: told{forwarder, x.parts}, Live: x.live, Logger: zap.NewNop(), Registerer: x.registry,
	})
	g := NewGRPC(zap.NewNop(), x.registry)
	SetServing(x.server.Register(g), true)
	listener := bufconn.Listen(1 << 20)
	served := make(chan error)
	go func() { served <- g.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///controller", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		g.Stop()
		<-served
	})
	x.conn, x.client = conn, skipperpb.NewControllerServiceClient(conn)
	x.view.Apply(readyPod(function("t"), "pod-1"))
	x.acquire = func(_ context.Context, f *skipperpb.Function) (pool.Pod, error) { return readyPod(f, "pod-1"), nil }
	return x
}

func function(tenant string) *skipperpb.Function {
	return &skipperpb.Function{
		Namespace: "prod", Deployment: "echo", Tenant: tenant, Scale: &skipperpb.Scale{MaxInstances: 5},
	}
}

func oneshot() *skipperpb.Function {
	f := function("t")
	f.Oneshot = true
	return f
}

func readyPod(f *skipperpb.Function, uid string) pool.Pod {
	at := time.Unix(1700000000, 0).UTC()
	return pool.Pod{
		Namespace: "prod", Name: "name-" + uid, UID: uid, IP: "10.244.0.7", Port: 8080, Protocol: xds.HTTP1, Version: 7,
		Deployment: "echo", Ready: true, Phase: corev1.PodRunning,
		Marked: true, Tenant: f.GetTenant(), Function: f, Key: fn.KeyOf(f), AssignedAt: at, ReadyAt: at,
	}
}

func TestGetInstance(t *testing.T) {
	x := serve(t)
	got, err := x.client.GetInstance(t.Context(), &skipperpb.GetInstanceRequest{Function: function("t"), ExcludeInstanceNames: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	i := got.GetInstance()
	if i.GetUid() != "pod-1" || i.GetAddr() != "10.244.0.7:8080" || i.GetCluster() != xds.ClusterOf(xds.HTTP1, "pod-1", 4) || i.GetVersion() != 7 {
		t.Errorf("instance %v", i)
	}
	if len(x.touched) != 1 || len(x.excluded) != 1 {
		t.Errorf("touched %v, excluded %v, want each once", x.touched, x.excluded)
	}
}

func TestGetInstanceRefusals(t *testing.T) {
	tooMany, elsewhere, unknown := function("t"), function("t"), function("t")
	tooMany.Scale.MaxInstances, elsewhere.Namespace, unknown.Deployment = 11, "other", "nowhere"
	noTenant := function("")
	tests := []struct {
		name     string
		request  *skipperpb.GetInstanceRequest
		acquired error
		code     codes.Code
		reason   reason.Reason
		says     string
	}{
		{"no function", &skipperpb.GetInstanceRequest{}, nil, codes.InvalidArgument, reason.HeaderInvalid, "function is missing"},
		{"no tenant", &skipperpb.GetInstanceRequest{Function: noTenant}, nil, codes.InvalidArgument, reason.HeaderInvalid, "tenant is empty"},
		{"namespace", &skipperpb.GetInstanceRequest{Function: elsewhere}, nil, codes.NotFound, reason.NamespaceNotManaged, "--function-namespaces"},
		{"deployment", &skipperpb.GetInstanceRequest{Function: unknown}, nil, codes.NotFound, reason.DeploymentNotFound, "nowhere"},
		{"limit", &skipperpb.GetInstanceRequest{Function: tooMany}, nil, codes.ResourceExhausted, reason.LimitReached, "--max-instances-limit"},
		{"too many excluded", &skipperpb.GetInstanceRequest{Function: function("t"), ExcludeInstanceNames: make([]string, 101)}, nil, codes.InvalidArgument, "", "at most 100"},
		{"pool empty", &skipperpb.GetInstanceRequest{Function: function("t")}, &acquire.Error{Cause: acquire.PoolEmpty, Message: "0 of 3 pods", Err: context.DeadlineExceeded}, codes.DeadlineExceeded, reason.HoldTimeout, "0 of 3 pods"},
		{"unfinished", &skipperpb.GetInstanceRequest{Function: function("t")}, &acquire.Error{Cause: acquire.Unfinished, Message: "slow", Err: context.DeadlineExceeded}, codes.DeadlineExceeded, reason.HoldTimeout, "slow"},
		{"gone in between", &skipperpb.GetInstanceRequest{Function: function("t")}, &acquire.Error{Cause: acquire.DeploymentNotFound, Message: "gone"}, codes.NotFound, reason.DeploymentNotFound, "gone"},
		{"limit of claims", &skipperpb.GetInstanceRequest{Function: function("t")}, &acquire.Error{Cause: acquire.LimitReached, Message: "600 claims", RetryAfter: time.Second}, codes.ResourceExhausted, reason.LimitReached, "600 claims"},
		{"stopping", &skipperpb.GetInstanceRequest{Function: function("t")}, &acquire.Error{Cause: acquire.Internal, Message: "stopping", Err: context.Canceled}, codes.Unavailable, reason.ControllerUnavailable, "another replica"},
		{"never possible", &skipperpb.GetInstanceRequest{Function: function("t")}, &acquire.Error{Cause: acquire.InvalidFunction, Message: "large"}, codes.InvalidArgument, reason.HeaderInvalid, "large"},
		{"API server refuses", &skipperpb.GetInstanceRequest{Function: function("t")}, &acquire.Error{Cause: acquire.Refused, Message: "forbidden"}, codes.Internal, reason.Internal, "forbidden"},
		{"unknown fault", &skipperpb.GetInstanceRequest{Function: function("t")}, errors.New("odd"), codes.Internal, reason.Internal, "odd"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := serve(t)
			if tt.acquired != nil {
				x.acquire = func(context.Context, *skipperpb.Function) (pool.Pod, error) { return pool.Pod{}, tt.acquired }
			}
			_, err := x.client.GetInstance(t.Context(), tt.request)
			if status.Code(err) != tt.code || reason.Of(err) != tt.reason || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v (%s, %q), want %s, %q, saying %q", err, status.Code(err), reason.Of(err), tt.code, tt.reason, tt.says)
			}
			if got, want := reason.IsPermanent(err), tt.request.GetFunction().GetScale().GetMaxInstances() > 10; got != want {
				t.Errorf("no retry helps: %v, want %v", got, want)
			}
		})
	}
}

func TestAssignRejectedSaysWhenToTryAgain(t *testing.T) {
	x := serve(t)
	x.acquire = func(context.Context, *skipperpb.Function) (pool.Pod, error) {
		return pool.Pod{}, &acquire.Error{Cause: acquire.AssignRejected, Message: "3 pods refused", RetryAfter: 4 * time.Second}
	}
	_, err := x.client.GetInstance(t.Context(), &skipperpb.GetInstanceRequest{Function: function("t")})
	if status.Code(err) != codes.FailedPrecondition || reason.Of(err) != reason.AssignRejected {
		t.Fatalf("error %v, want FAILED_PRECONDITION, assign_rejected", err)
	}
	for _, d := range status.Convert(err).Details() {
		if r, ok := d.(*errdetails.RetryInfo); ok && r.GetRetryDelay().AsDuration() == 4*time.Second {
			return
		}
	}
	t.Errorf("details %v, want a retry delay of 4s", status.Convert(err).Details())
}

func TestCauseArrivesBeforeTheCallersDeadline(t *testing.T) {
	x := serve(t)
	x.acquire = func(ctx context.Context, _ *skipperpb.Function) (pool.Pod, error) {
		<-ctx.Done()
		return pool.Pod{}, &acquire.Error{Cause: acquire.PoolEmpty, Message: "0 of 3 pods ready", Err: ctx.Err()}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := x.client.GetInstance(ctx, &skipperpb.GetInstanceRequest{Function: function("t")})
	if status.Code(err) != codes.DeadlineExceeded || reason.Of(err) != reason.HoldTimeout {
		t.Errorf("error %v, want the controller's own with its reason", err)
	}
}

func TestWithinBoundsTheWait(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct{ given, want time.Duration }{
		{0, longest}, {time.Hour, longest}, {30 * time.Second, 30*time.Second - marginMost}, {time.Second, 900 * time.Millisecond},
	} {
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if tt.given > 0 {
			ctx, cancel = context.WithDeadline(ctx, now.Add(tt.given))
		}
		bounded, end := within(ctx, now)
		if d, _ := bounded.Deadline(); d.Sub(now) != tt.want {
			t.Errorf("caller gives %s: wait %s, want %s", tt.given, d.Sub(now), tt.want)
		}
		end()
		cancel()
	}
}

func TestEmptyRingIsUnavailable(t *testing.T) {
	x := serve(t)
	x.members.Set()
	_, err := x.client.GetInstance(t.Context(), &skipperpb.GetInstanceRequest{Function: function("cold")})
	if status.Code(err) != codes.Unavailable || reason.Of(err) != reason.ControllerUnavailable {
		t.Errorf("GetInstance: %v, want UNAVAILABLE, controller_unavailable", err)
	}
	if _, err := x.client.GetInstance(t.Context(), &skipperpb.GetInstanceRequest{Function: function("t")}); err != nil {
		t.Errorf("GetInstance of a warm function: %v, want it answered", err)
	}
	_, err = x.client.Scale(t.Context(), &skipperpb.ScaleRequest{Function: function("t"), DesiredInstances: 1})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("Scale: %v, want UNAVAILABLE", err)
	}
}

func TestScale(t *testing.T) {
	x := serve(t)
	x.scale = func(n int) ([]pool.Pod, error) {
		var pods []pool.Pod
		for i := range n {
			pods = append(pods, readyPod(function("t"), fmt.Sprint("pod-", i)))
		}
		return pods, nil
	}
	got, err := x.client.Scale(t.Context(), &skipperpb.ScaleRequest{Function: function("t"), DesiredInstances: 4_000_000_000})
	if err != nil || len(got.GetInstances()) != 5 {
		t.Errorf("Scale = %d instances, %v, want max_instances, 5", len(got.GetInstances()), err)
	}
	if _, err := x.client.Scale(t.Context(), &skipperpb.ScaleRequest{Function: oneshot(), DesiredInstances: 1}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("Scale of a oneshot: %v, want INVALID_ARGUMENT", err)
	}
	x.scale = func(int) ([]pool.Pod, error) {
		return nil, fmt.Errorf("assign: %w", &acquire.Error{Cause: acquire.PoolEmpty, Message: "empty", Err: context.DeadlineExceeded})
	}
	if _, err := x.client.Scale(t.Context(), &skipperpb.ScaleRequest{Function: function("t"), DesiredInstances: 2}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("Scale with an empty pool: %v, want DEADLINE_EXCEEDED", err)
	}
}

func TestReleaseInstance(t *testing.T) {
	name := func(f *skipperpb.Function, name, uid string) *skipperpb.Instance {
		return &skipperpb.Instance{Function: &skipperpb.Function{
			Namespace: f.GetNamespace(), Deployment: f.GetDeployment(), Tenant: f.GetTenant(), Oneshot: f.GetOneshot(),
		}, Name: name, Uid: uid}
	}
	elsewhere := function("t")
	elsewhere.Namespace = "other"
	tests := []struct {
		name     string
		instance *skipperpb.Instance
		code     codes.Code
		want     string
	}{
		{"drains", name(function("t"), "name-pod-1", "pod-1"), codes.OK, "drain pod-1"},
		{"by name alone", name(function("t"), "name-pod-1", ""), codes.OK, "drain pod-1"},
		{"by uid alone", name(function("t"), "", "pod-1"), codes.OK, "drain pod-1"},
		{"deletes a oneshot", name(oneshot(), "name-one", "one"), codes.OK, "delete one"},
		{"gone", name(function("t"), "name-gone", "gone"), codes.OK, ""},
		{"gone, the name is another pod's", name(function("t"), "name-pod-1", "gone"), codes.OK, ""},
		{"uid of another name", name(function("t"), "name-one", "pod-1"), codes.OK, ""},
		{"another tenant's", name(function("u"), "name-pod-1", "pod-1"), codes.FailedPrecondition, ""},
		{"not the oneshot", name(oneshot(), "name-pod-1", "pod-1"), codes.FailedPrecondition, ""},
		{"of nobody we know of", name(function("t"), "name-idle", "idle"), codes.FailedPrecondition, ""},
		{"nothing named", nil, codes.InvalidArgument, ""},
		{"no pod named", name(function("t"), "", ""), codes.InvalidArgument, ""},
		{"namespace not managed", name(elsewhere, "name-pod-1", "pod-1"), codes.NotFound, ""},
		{"oneshot claimed elsewhere a moment ago", name(oneshot(), "name-idle", "idle"), codes.OK, "delete idle"},
		{"claimed elsewhere a moment ago", name(function("v"), "name-idle2", "idle2"), codes.OK, "drain idle2"},
		{"oneshot not seen here", name(oneshot(), "name-new", "new"), codes.OK, "delete soon new"},
		{"not seen here", name(function("t"), "name-new2", "new2"), codes.Unavailable, ""},
		{"not seen here, another's", name(oneshot(), "name-new2", "new2"), codes.FailedPrecondition, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := serve(t)
			x.view.Apply(readyPod(oneshot(), "one"))
			x.api = map[string]pool.Pod{}
			for _, idle := range []string{"idle", "idle2"} {
				x.view.Apply(pool.Pod{Namespace: "prod", Name: "name-" + idle, UID: idle, Deployment: "echo"})
			}
			for uid, f := range map[string]*skipperpb.Function{"idle": oneshot(), "idle2": function("v"), "pod-1": function("t"), "new": oneshot(), "new2": function("t")} {
				x.api["name-"+uid] = readyPod(f, uid)
			}
			_, err := x.client.ReleaseInstance(t.Context(), &skipperpb.ReleaseInstanceRequest{Instance: tt.instance})
			if got := strings.Join(x.retired, ", "); status.Code(err) != tt.code || got != tt.want {
				t.Errorf("ReleaseInstance = %v, did %q, want %s and %q", err, got, tt.code, tt.want)
			}
		})
	}
}

func TestReleaseThatFails(t *testing.T) {
	x := serve(t)
	i := &skipperpb.Instance{Function: function("t"), Uid: "pod-1"}
	for _, tt := range []struct {
		err  error
		code codes.Code
	}{{retire.ErrNotTheFunctions, codes.FailedPrecondition}, {errors.New("no API server"), codes.Internal}} {
		x.retire = tt.err
		if _, err := x.client.ReleaseInstance(t.Context(), &skipperpb.ReleaseInstanceRequest{Instance: i}); status.Code(err) != tt.code {
			t.Errorf("ReleaseInstance = %v, want %s", err, tt.code)
		}
	}
}

func TestHeartbeat(t *testing.T) {
	x := serve(t)
	bad, tooMany, elsewhere := function(""), function("v"), function("w")
	tooMany.Scale.MaxInstances, elsewhere.Namespace = 11, "other"
	r := &skipperpb.HeartbeatRequest{RouterIp: "10.9.0.1", ForwardedFor: []string{"10.0.0.7"}}
	for _, f := range []*skipperpb.Function{function("t"), bad, nil, tooMany, elsewhere, function("u")} {
		r.Heartbeats = append(r.Heartbeats, &skipperpb.Heartbeat{Function: f, InFlightRequests: 3})
	}
	if _, err := x.client.Heartbeat(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(x.heard, " "); got != "t u" {
		t.Errorf("heard of %q, want \"t u\"", got)
	}
	if n := x.server.Heartbeats.InFlight(fn.KeyOf(function("u")), time.Now()); n != 3 {
		t.Errorf("%d in flight, want 3", n)
	}
	if got := strings.Join(x.forwarded, "; "); got != "10.9.0.1 2 [10.0.0.7]" {
		t.Errorf("others were told %q, want once of the valid ones", got)
	}
	if n := testutil.ToFloat64(x.server.heard.WithLabelValues("invalid")); n != 4 {
		t.Errorf("%v invalid heartbeats counted, want 4", n)
	}
	for _, r := range []*skipperpb.HeartbeatRequest{{}, {RouterId: strings.Repeat("x", 254)}, {RouterIp: "10.9.0.1", EnvoyNodeId: strings.Repeat("x", 254)}, {RouterIp: "10.9.0.1", ForwardedFor: make([]string, 1001)}} {
		if _, err := x.client.Heartbeat(t.Context(), r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("Heartbeat = %v, want INVALID_ARGUMENT", err)
		}
	}
}

// A router that uses no function is heard of by all, too.
func TestHeartbeatWithoutFunctions(t *testing.T) {
	x := serve(t)
	for _, r := range []*skipperpb.HeartbeatRequest{
		{RouterIp: "10.9.0.1", RouterId: "r", EnvoyNodeId: "e", RunningFor: durationpb.New(time.Second)},
		{RouterIp: "10.9.0.2", Heartbeats: []*skipperpb.Heartbeat{{Function: function("")}}},
	} {
		if _, err := x.client.Heartbeat(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := x.client.Heartbeat(t.Context(), &skipperpb.HeartbeatRequest{RouterIp: "10.9.0.1", RunningFor: durationpb.New(-1)}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("Heartbeat of a router that began in the future = %v, want INVALID_ARGUMENT", err)
	}
	if got := strings.Join(x.forwarded, "; "); got != "10.9.0.1 0 []; 10.9.0.2 0 []" {
		t.Errorf("others were told %q, want of both routers", got)
	}
	if len(x.heard) > 0 || x.server.Heartbeats.Routers() != 0 {
		t.Errorf("heard of %v, %d routers remembered: want neither", x.heard, x.server.Heartbeats.Routers())
	}
}

// What the state is made of is tested where it is put together.
func TestGetClusterState(t *testing.T) {
	x := serve(t)
	r, err := x.client.GetClusterState(t.Context(), &skipperpb.GetClusterStateRequest{Tenant: "t"})
	if err != nil || r.GetClusterState().GetPodIp() != "of t" {
		t.Errorf("GetClusterState = %v, %v, want what the gatherer says of t", r, err)
	}
	x.server.State = nil
	if _, err := x.client.GetClusterState(t.Context(), &skipperpb.GetClusterStateRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("GetClusterState without a gatherer = %v, want UNIMPLEMENTED", err)
	}
}

func TestPanicIsInternalAndCounted(t *testing.T) {
	x := serve(t)
	x.acquire = func(context.Context, *skipperpb.Function) (pool.Pod, error) { panic("bug") }
	for range 2 {
		_, err := x.client.GetInstance(t.Context(), &skipperpb.GetInstanceRequest{Function: function("t")})
		if status.Code(err) != codes.Internal || reason.Of(err) != reason.Internal || strings.Contains(err.Error(), "bug") {
			t.Errorf("error %v, want INTERNAL without details", err)
		}
	}
	want := "# HELP skipper_controller_grpc_panics_total Calls that ended in a panic; any is a bug.\n" +
		"# TYPE skipper_controller_grpc_panics_total counter\nskipper_controller_grpc_panics_total 2\n"
	if err := testutil.GatherAndCompare(x.registry, strings.NewReader(want), "skipper_controller_grpc_panics_total"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(x.registry, "skipper_controller_grpc_seconds"); n != 1 {
		t.Errorf("%d series of call times, want one method and code", n)
	}
}

func TestHealth(t *testing.T) {
	x := serve(t)
	for _, service := range []string{"", "skipper.ControllerService"} {
		got, err := healthpb.NewHealthClient(x.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q = %v, %v, want SERVING", service, got.GetStatus(), err)
		}
	}
}
