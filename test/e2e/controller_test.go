//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The tests of this file disturb the controller, so none of them is parallel. After each, Envoy is connected again:
// until then it does not know new pods.

// gatewayReadyPort of Envoy serves its metrics.
const gatewayReadyPort = "9902"

// load of light traffic on warm functions.
const (
	loadTenants  = 4
	loadPause    = 200 * time.Millisecond // per tenant: 20 requests/s in all
	afterRestart = 100                    // requests that must follow the end of a disturbance
)

// Without a controller, warm requests go on; afterwards it takes over what it finds.
func TestWarmRequestsOutliveTheController(t *testing.T) {
	const requests = 300
	p := newWorld(t).newPool(t, 3)
	replicas := int32(len(p.systemPods(t, controllerName)))
	warm := p.warmUp(t, 3)
	p.reconnectAfterwards(t)
	afterwards(t, "start the controller", func(ctx context.Context) error { return p.scaleController(ctx, replicas) })
	if err := p.scaleController(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for i := range requests {
		tenant := fmt.Sprint(i % len(warm))
		if e := mustEcho(t, p.get(t.Context(), p.function(tenant), "/")); e.PodUID != warm[tenant] {
			t.Fatalf("tenant %s moved from pod %s to %s", tenant, warm[tenant], e.PodUID)
		}
	}
	if err := p.scaleController(t.Context(), replicas); err != nil {
		t.Fatal(err)
	}
	mustEcho(t, p.get(t.Context(), p.function("cold"), "/"))
	for tenant, uid := range warm {
		p.wantSteady(t, tenant, uid)
	}
	p.waitFull(t)
	p.wantClaims(t, "", len(warm)+1)
}

// A crash of a replica loses no request and no pod.
func TestControllerCrashUnderLoad(t *testing.T) {
	p := newWorld(t).newPool(t, 3)
	p.disturb(t, func() {
		pod := p.systemPods(t, controllerName)[0]
		before := pod.Status.ContainerStatuses[0].RestartCount
		processOf(t, &pod, "controller").kill(t)
		eventually(t, "the controller to be ready again", func() (bool, string) {
			s := p.systemPods(t, controllerName)[0].Status.ContainerStatuses[0]
			return s.Ready && s.RestartCount > before, fmt.Sprintf("%+v", s)
		})
	})
}

// disturb keeps warm functions under light load while f runs and for some time after it: all requests are answered,
// by the same pods. Then a cold function works too.
func (p *pool) disturb(t *testing.T, f func()) {
	t.Helper()
	p.reconnectAfterwards(t)
	warm := p.warmUp(t, loadTenants)
	l := startLoad(t, p, warm, loadPause)
	f()
	seen := l.count()
	eventually(t, "requests after the disturbance", func() (bool, string) {
		n := l.count()
		return n >= seen+afterRestart, fmt.Sprint(n)
	})
	mustEcho(t, p.get(t.Context(), p.function("cold"), "/"))
	for _, problem := range l.stop() {
		t.Error(problem)
	}
	t.Logf("%d requests", l.count())
	p.waitFull(t)
	p.wantClaims(t, "", len(warm)+1)
}

// warmUp gives pods to tenants "0", "1", ...
func (p *pool) warmUp(t *testing.T, tenants int) map[string]types.UID {
	t.Helper()
	warm := map[string]types.UID{}
	for i := range tenants {
		name := fmt.Sprint(i)
		warm[name] = mustEcho(t, p.get(t.Context(), p.function(name), "/")).PodUID
	}
	p.waitFull(t)
	return warm
}

// load is light traffic on warm functions, until stop.
type load struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	sent     int
	problems []string
}

// startLoad sends a request to each tenant once in every pause.
func startLoad(t *testing.T, p *pool, warm map[string]types.UID, pause time.Duration) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel}
	for tenant, uid := range warm {
		l.wg.Go(func() { l.run(ctx, p, tenant, uid, pause) })
	}
	t.Cleanup(func() { l.stop() })
	return l
}

func (l *load) run(ctx context.Context, p *pool, tenant string, uid types.UID, pause time.Duration) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.record(tenant, uid, p.get(context.WithoutCancel(ctx), p.function(tenant), "/"))
		}
	}
}

func (l *load) record(tenant string, uid types.UID, a answer) {
	e, err := echoOf(a)
	if err == nil && e.PodUID != uid {
		err = fmt.Errorf("moved from pod %s to %s", uid, e.PodUID)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	if err != nil {
		l.problems = append(l.problems, fmt.Sprintf("%s request %d of tenant %s: %v", time.Now().Format(time.TimeOnly), l.sent, tenant, err))
	}
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

// stop ends the traffic and tells what went wrong.
func (l *load) stop() []string {
	l.cancel()
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.problems
}

// scaleController starts or stops the controller and waits for it.
func (w *world) scaleController(ctx context.Context, replicas int32) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := w.kube.AppsV1().Deployments(w.system).Patch(ctx, controllerName, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("scale the controller to %d: %w", replicas, err)
	}
	return w.waitRollout(ctx, w.system, controllerName)
}

func (w *world) patchController(t *testing.T, change map[string]any) {
	t.Helper()
	patch, err := json.Marshal(change)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.kube.AppsV1().Deployments(w.system).Patch(t.Context(), controllerName, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// withController runs the rest of the test with other settings of the controller.
func (w *world) withController(t *testing.T, settings map[string]string) {
	t.Helper()
	deployments := w.kube.AppsV1().Deployments(w.system)
	d, err := deployments.Get(t.Context(), controllerName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	env := d.Spec.Template.Spec.Containers[0].Env
	changed := append([]corev1.EnvVar{}, env...)
	for name, value := range settings {
		changed = append(changed, corev1.EnvVar{Name: name, Value: value})
	}
	w.reconnectAfterwards(t)
	afterwards(t, "restore the controller's settings", func(ctx context.Context) error { return w.setControllerEnv(ctx, env) })
	if err := w.setControllerEnv(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if err := w.waitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// reconnectAfterwards ends the test, and what it has to restore, with a gateway that hears the controller.
func (w *world) reconnectAfterwards(t *testing.T) {
	t.Helper()
	afterwards(t, "connect the gateway", w.waitConnected)
}

// waitConnected waits until Envoy has a stream to a controller. Its metrics come through the API server.
func (w *world) waitConnected(ctx context.Context) error {
	var state string
	err := poll(ctx, func() bool {
		pods, err := w.kube.CoreV1().Pods(w.system).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + gatewayName})
		if err != nil || len(pods.Items) == 0 {
			state = fmt.Sprintf("%d gateways, %v", len(pods.Items), err)
			return false
		}
		text, err := w.kube.CoreV1().Pods(w.system).ProxyGet("http", pods.Items[0].Name, gatewayReadyPort, "/metrics", nil).DoRaw(ctx)
		state = fmt.Sprintf("no connected_state 1 in %d bytes of metrics, %v", len(text), err)
		return bytes.Contains(text, []byte("envoy_control_plane_connected_state{} 1\n"))
	})
	if err != nil {
		return fmt.Errorf("wait for Envoy's connection to the controller: %w: %s", err, state)
	}
	return nil
}

// setControllerEnv replaces the controller's environment and waits for it to run with it.
func (w *world) setControllerEnv(ctx context.Context, env []corev1.EnvVar) error {
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/template/spec/containers/0/env", "value": env}})
	if err != nil {
		return fmt.Errorf("encode environment: %w", err)
	}
	_, err = w.kube.AppsV1().Deployments(w.system).Patch(ctx, controllerName, types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("patch the controller's environment: %w", err)
	}
	return w.waitRollout(ctx, w.system, controllerName)
}
