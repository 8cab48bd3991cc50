package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"skipper/controller/config"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/reason"
	"skipper/xds"
)

func TestColdStart(t *testing.T) {
	w := startWorld(t, 3, nil)
	f := function("t1")
	list := w.subscribe(xds.InstancesTypeURL, xds.InstancesName(fn.KeyOf(f)))
	list.until("empty list", holds(t))
	i, err := w.get(f)
	if err != nil {
		t.Fatal(err)
	}
	list.until("instance in the list", holds(t, i.GetUid()))
	w.expectOneAssignment("t1")
	w.until("claim and ready-at", func(pods []corev1.Pod) bool {
		mine := tenantPods(pods, "t1")
		return len(mine) == 1 && string(mine[0].UID) == i.GetUid() && mine[0].Annotations[pool.AnnotationReadyAt] != ""
	})
	again, err := w.get(f)
	if err != nil || again.GetUid() != i.GetUid() || len(w.posts) != 1 {
		t.Errorf("warm: %v, %v, %d assignments, want the same instance and one", again.GetUid(), err, len(w.posts))
	}
	other, err := w.get(function("t2"))
	if err != nil || other.GetUid() == i.GetUid() {
		t.Errorf("second tenant: %v, %v, want another pod", other.GetUid(), err)
	}
}

func (w *world) expectOneAssignment(tenant string) {
	w.t.Helper()
	if len(w.posts) != 1 {
		w.t.Fatalf("%d assignments, want one", len(w.posts))
	}
	r := w.posts[0]
	if r.URL.Path != "/__skipper/assign" || r.Header.Get("X-Skipper-Token") == "" || !strings.Contains(r.Header.Get("X-Skipper-Function"), `"tenant":"`+tenant+`"`) {
		w.t.Errorf("assignment %s %v, want function and token", r.URL, r.Header)
	}
}

func TestEveryPodIsAnEndpointBeforeItIsClaimed(t *testing.T) {
	w := startWorld(t, 5, nil)
	seen := map[string]bool{}
	w.subscribe(resourcev3.EndpointType).until("5 endpoints", func(r *discoveryv3.Resource) bool {
		var a endpointv3.ClusterLoadAssignment
		if err := r.GetResource().UnmarshalTo(&a); err != nil {
			t.Error(err)
		}
		for _, l := range a.GetEndpoints() {
			for _, e := range l.GetLbEndpoints() {
				seen[fmt.Sprint(e.GetEndpoint().GetAddress().GetSocketAddress().GetPortValue())] = true
			}
		}
		return len(seen) == 5
	})
}

func TestParallelCallersShareOneAssignment(t *testing.T) {
	w := startWorld(t, 5, nil)
	got := make([]string, 30)
	var all sync.WaitGroup
	for n := range got {
		all.Go(func() {
			i, err := w.get(function("t"))
			if err != nil {
				t.Error(err)
			}
			got[n] = i.GetUid()
		})
	}
	all.Wait()
	for _, uid := range got {
		if uid != got[0] {
			t.Fatalf("callers got %v, want one pod", got)
		}
	}
	if len(w.posts) != 1 {
		t.Errorf("%d assignments, want 1", len(w.posts))
	}
}

func TestOneshotsGetPodsOfTheirOwnAndAreDeleted(t *testing.T) {
	w := startWorld(t, 3, nil)
	f := function("t")
	f.Oneshot = true
	seen := map[string]bool{}
	for range 3 {
		i, err := w.get(f)
		if err != nil {
			t.Fatal(err)
		}
		seen[i.GetUid()] = true
		if _, err := w.client.ReleaseInstance(t.Context(), &skipperpb.ReleaseInstanceRequest{Instance: i}); err != nil {
			t.Error(err)
		}
	}
	if len(seen) != 3 {
		t.Errorf("pods %v, want 3", seen)
	}
	w.until("all deleted", func(pods []corev1.Pod) bool { return len(pods) == 0 })
}

func TestIdleFunctionIsDrained(t *testing.T) {
	w := startWorld(t, 1, func(c *config.Config) {
		c.HeartbeatTimeout, c.DownscaleStabilization, c.ScaleInterval = 2*time.Second, time.Second, 200*time.Millisecond
	})
	f := function("t")
	list := w.subscribe(xds.InstancesTypeURL, xds.InstancesName(fn.KeyOf(f)))
	i, err := w.get(f)
	if err != nil {
		t.Fatal(err)
	}
	list.until("in routing", holds(t, i.GetUid()))
	list.until("out of routing", holds(t))
	w.until("draining", func(pods []corev1.Pod) bool {
		return len(pods) == 1 && pods[0].Annotations[pool.AnnotationDrainingAt] != ""
	})
}

func TestHeartbeatsScaleUp(t *testing.T) {
	w := startWorld(t, 3, func(c *config.Config) { c.ScaleInterval = 200 * time.Millisecond })
	f := function("t")
	f.Scale.TargetInFlightRequests = 10
	if _, err := w.get(f); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.Heartbeat(t.Context(), &skipperpb.HeartbeatRequest{
		RouterIp: "10.9.0.1", Heartbeats: []*skipperpb.Heartbeat{{Function: f, InFlightRequests: 21}},
	}); err != nil {
		t.Fatal(err)
	}
	w.until("3 instances", func(pods []corev1.Pod) bool { return len(tenantPods(pods, "t")) == 3 })
	state, err := w.client.GetClusterState(t.Context(), &skipperpb.GetClusterStateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	s := state.GetClusterState().GetSupervisors()
	if len(s) != 1 || s[0].GetResponsibleControllerIp() != "10.0.0.1" || s[0].GetActiveReplicaSet() != "echo-1" {
		t.Errorf("state %v", s)
	}
}

func TestRefusingImageIsRejectedAndOthersServed(t *testing.T) {
	w := startWorld(t, 6, nil)
	w.status = http.StatusInternalServerError
	_, err := w.get(function("bad"))
	if status.Code(err) != codes.FailedPrecondition || reason.Of(err) != reason.AssignRejected {
		t.Errorf("refused: %v, want FAILED_PRECONDITION, assign_rejected", err)
	}
	w.mu.Lock()
	w.status = http.StatusOK
	w.mu.Unlock()
	if _, err := w.get(function("good")); err != nil {
		t.Errorf("another tenant: %v, want it served", err)
	}
	w.until("3 pods used up", func(pods []corev1.Pod) bool { return len(pods) == 3 && len(tenantPods(pods, "bad")) == 0 })
}

func TestEmptyPoolSaysWhyAndServesWhenItHasGrown(t *testing.T) {
	w := startWorld(t, 0, nil)
	w.subscribe(xds.InstancesTypeURL, "functions/echo/t").until("ready", holds(t))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := w.client.GetInstance(ctx, &skipperpb.GetInstanceRequest{Function: function("t")})
	if status.Code(err) != codes.DeadlineExceeded || reason.Of(err) != reason.HoldTimeout || !strings.Contains(err.Error(), "0 of 0 pods") {
		t.Errorf("empty pool: %v, want the controller's own DEADLINE_EXCEEDED", err)
	}
	w.addPod(9)
	if _, err := w.get(function("t")); err != nil {
		t.Errorf("grown pool: %v", err)
	}
}

func TestReadyHealthMetrics(t *testing.T) {
	w := startWorld(t, 1, nil)
	if _, err := w.get(function("t")); err != nil { // so it is ready
		t.Fatal(err)
	}
	h, err := healthpb.NewHealthClient(w.conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || h.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health %v, %v, want SERVING", h.GetStatus(), err)
	}
	for path, want := range map[string]string{"/readyz": "ok", "/healthz": "ok", "/metrics": "skipper_controller_supervisors 1"} {
		if got := w.read(path); !strings.Contains(got, want) {
			t.Errorf("%s says %q, want %q in it", path, got, want)
		}
	}
	for _, name := range []string{"grpc_seconds", "converges_total", "published_changes_total", "claims_total", "informer_events_total"} {
		if !strings.Contains(w.read("/metrics"), "skipper_controller_"+name) {
			t.Errorf("no metric skipper_controller_%s", name)
		}
	}
}

func (w *world) read(path string) string {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.web+path, http.NoBody)
	if err != nil {
		w.t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	r, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

func TestStopFinishesTheAssignmentUnderWay(t *testing.T) {
	w := startWorld(t, 1, nil)
	list := w.subscribe(xds.InstancesTypeURL, xds.InstancesName(fn.KeyOf(function("t")))) // a stream that never ends by itself
	list.until("served", holds(t))
	w.hold = make(chan struct{})
	type answer struct {
		i   *skipperpb.Instance
		err error
	}
	got := make(chan answer, 1)
	go func() {
		i, err := w.get(function("t"))
		got <- answer{i, err}
	}()
	<-w.posted
	stopped := make(chan error, 1)
	go func() { stopped <- w.stop() }()
	if _, err := list.stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("xDS stream ended with %v, want UNAVAILABLE, so that the client goes elsewhere", err)
	}
	close(w.hold)
	if a := <-got; a.err != nil {
		t.Errorf("call under way: %v, want its instance", a.err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("run = %v", err)
	}
	w.until("ready-at written", func(pods []corev1.Pod) bool { return pods[0].Annotations[pool.AnnotationReadyAt] != "" })
}

func TestPartThatFailsStopsAll(t *testing.T) {
	cfg := config.Default()
	cfg.Host, cfg.Port, cfg.WebPort, cfg.PodIP = "127.0.0.1", 0, 0, "10.0.0.1"
	cfg.FunctionNamespaces, cfg.PasetoPrivateKey, cfg.InsecurePlaintext = []string{namespace}, privateKey(t), true
	l, err := listen(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	_ = l.web.Close() // so that the web server fails
	api := fake.NewClientset()
	err = run(t.Context(), settings{Config: cfg}, clients{api, api.CoreV1(), nil, newAPICalls()}, l, zap.NewNop())
	if !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), "serve web") {
		t.Errorf("run = %v, want the part and its error", err)
	}
}

func TestUnusableKeyIsSaidAtTheStart(t *testing.T) {
	cfg := config.Default()
	cfg.PasetoPrivateKey, cfg.InsecurePlaintext = "hush", true
	api := fake.NewClientset()
	cfg.FunctionNamespaces = []string{namespace}
	err := run(t.Context(), settings{Config: cfg}, clients{api, api.CoreV1(), nil, newAPICalls()}, listeners{}, zap.NewNop())
	if err == nil || !strings.Contains(err.Error(), "--paseto-private-key") || strings.Contains(err.Error(), "hush") {
		t.Errorf("run = %v, want the flag named and not its value", err)
	}
}

func TestPortThatIsTakenIsSaid(t *testing.T) {
	cfg := config.Default()
	cfg.Host, cfg.Port, cfg.WebPort = "127.0.0.1", 0, 0
	l, err := listen(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	cfg.WebPort = l.grpc.Addr().(*net.TCPAddr).AddrPort().Port()
	if second, err := listen(t.Context(), cfg); err == nil {
		second.close()
		t.Error("listened twice on one port")
	}
}

func TestForbiddenNamespace(t *testing.T) {
	for _, skip := range []bool{false, true} {
		api := fake.NewClientset()
		api.PrependReactor("list", "*", forbid("secret"))
		got, err := readable(t.Context(), api, []string{namespace, "secret"}, skip, zap.NewNop())
		if skip != (err == nil) || skip && len(got) != 1 {
			t.Errorf("skip %v: %v, %v", skip, got, err)
		}
		if _, err := readable(t.Context(), api, []string{"secret"}, skip, zap.NewNop()); err == nil {
			t.Errorf("skip %v: no namespace left is no error", skip)
		}
	}
}

func forbid(namespace string) k8stesting.ReactionFunc {
	return func(a k8stesting.Action) (bool, runtime.Object, error) {
		if a.GetNamespace() != namespace {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: a.GetResource().Resource}, "", nil)
	}
}

func TestCommandReportsAllMissingSettings(t *testing.T) {
	for _, name := range []string{"NAMESPACE", "POD_IP", "FUNCTION_NAMESPACES", "PASETO_PRIVATE_KEY", "PASETO_PRIVATE_KEY_FILE"} {
		t.Setenv("SKIPPER_"+name, "")
		if err := os.Unsetenv("SKIPPER_" + name); err != nil {
			t.Fatal(err)
		}
	}
	cmd := newCommand(func(context.Context, settings) error { return nil })
	cmd.SetArgs([]string{"--scale-interval=0s"})
	err := cmd.ExecuteContext(t.Context())
	for _, flag := range []string{"--namespace", "--pod-ip", "--function-namespaces", "--paseto-private-key", "--scale-interval"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("error %v does not name %s", err, flag)
		}
	}
}

func TestCommandReadsTheEnvironment(t *testing.T) {
	t.Setenv("SKIPPER_NAMESPACE", "skipper-system")
	t.Setenv("SKIPPER_POD_IP", "10.0.0.1")
	t.Setenv("SKIPPER_FUNCTION_NAMESPACES", "a,b")
	t.Setenv("SKIPPER_PASETO_PRIVATE_KEY", "secret")
	t.Setenv("SKIPPER_INSECURE_PLAINTEXT", "true")
	var got settings
	cmd := newCommand(func(_ context.Context, s settings) error { got = s; return nil })
	cmd.SetArgs(nil)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(got.FunctionNamespaces) != 2 || strings.Contains(fmt.Sprint(got.shown), "secret") {
		t.Errorf("settings %+v", got)
	}
}
