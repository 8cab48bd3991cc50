//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	skipperpb "skipper/proto"
	"skipper/proto/reason"
)

// extprocWebPort serves extproc's metrics.
const extprocWebPort = "8081"

// Skipper's own parts are restarted in order under requests of every kind, and none is lost. Not parallel: everybody
// uses these parts.
func TestNoRequestIsLostInARestart(t *testing.T) {
	w := newWorld(t)
	p := w.newPool(t, 4)
	functions := p.tenants(lossInstances)
	p.spreadOut(t, functions)
	t.Run("of the controllers", func(t *testing.T) { controllersStory(t, p, functions) })
	t.Run("of one of two gateways", func(t *testing.T) { gatewayStory(t, p, functions) })
}

// spreadOut gives the functions their instances at once, as an operator can; the supervisors would take longer.
func (p *pool) spreadOut(t *testing.T, functions []*skipperpb.Function) {
	t.Helper()
	operator := p.operator(t)
	for _, f := range functions {
		mustEcho(t, p.get(t.Context(), f, "/"))
		_, err := operator.Scale(t.Context(), &skipperpb.ScaleRequest{Function: f, DesiredInstances: f.GetScale().GetMinInstances()})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range functions {
		p.waitServing(t, f, int(f.GetScale().GetMinInstances()))
	}
}

// Every replica of the controller is replaced.
func controllersStory(t *testing.T, p *pool, functions []*skipperpb.Function) {
	p.reconnectAfterwards(t)
	before := p.pods.claimed("")
	tl := p.underLoad(t, functions, func(int) {
		stamp := map[string]string{"skipper-e2e/restarted-at": time.Now().Format(time.RFC3339Nano)}
		p.patchController(t, map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": stamp}}}})
		if err := p.waitRollout(t.Context(), systemNamespace, controllerName); err != nil {
			t.Fatal(err)
		}
	})
	tl.wantNoLoss(t, never)
	p.waitFull(t)
	p.wantClaims(t, "", len(before))
}

// One of two gateways, Envoy and extproc together, is deleted in the usual way, and another takes its place. It is the
// second one, so that the first stays as the rest of the suite knows it.
func gatewayStory(t *testing.T, p *pool, functions []*skipperpb.Function) {
	first := p.systemPod(t, gatewayName)
	afterwards(t, "go back to one gateway", func(ctx context.Context) error { return p.scaleGateway(ctx, 1) })
	if err := p.scaleGateway(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	tl := p.underLoad(t, functions, func(int) {
		second := p.otherGateway(t, first)
		if err := p.kube.CoreV1().Pods(systemNamespace).Delete(t.Context(), second.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s gateway %s is deleted", time.Now().Format(time.TimeOnly), second.Name)
		if err := p.waitRollout(t.Context(), systemNamespace, gatewayName); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s gateway %s is replaced", time.Now().Format(time.TimeOnly), second.Name)
	})
	tl.wantNoLoss(t, never)
}

// scaleGateway sets the number of gateways and waits for it. The oldest stay when it falls.
func (w *world) scaleGateway(ctx context.Context, replicas int32) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := w.kube.AppsV1().Deployments(systemNamespace).Patch(ctx, gatewayName, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("scale the gateway to %d: %w", replicas, err)
	}
	return w.waitRollout(ctx, systemNamespace, gatewayName)
}

// otherGateway is the one beside the first.
func (w *world) otherGateway(t *testing.T, first *corev1.Pod) *corev1.Pod {
	t.Helper()
	for _, p := range w.systemPods(t, gatewayName) {
		if p.UID != first.UID && p.DeletionTimestamp == nil {
			return &p
		}
	}
	t.Fatal("there is no second gateway")
	return nil
}

// An extproc that is killed, or stopped alone, cuts nothing that runs: it loses what it has not answered yet, and what
// comes until it is back. A pod lives as long as Envoy reports a request in progress on it, and afterwards every count
// is back at zero. A second gateway is used for it, by its own address, so that the first stays as it is.
func TestExtprocDiesUnderRequests(t *testing.T) {
	w := newWorld(t)
	first := w.systemPod(t, gatewayName)
	afterwards(t, "go back to one gateway", func(ctx context.Context) error { return w.scaleGateway(ctx, 1) })
	if err := w.scaleGateway(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	w.withController(t, lossSettings(t))
	second := w.otherGateway(t, first)
	skipUnlessNode(t, second.Status.HostIP)
	direct := *w
	direct.gateway = "http://" + net.JoinHostPort(second.Status.PodIP, gatewayPort)
	for _, row := range []struct {
		name   string
		signal syscall.Signal
	}{{"killed", syscall.SIGKILL}, {"stopped", syscall.SIGTERM}} {
		t.Run(row.name, func(t *testing.T) { deadExtprocStory(t, &direct, second, row.signal) })
	}
}

// deadExtprocStory ends extproc under traffic, and beside it under one WebSocket which is alone on its function.
func deadExtprocStory(t *testing.T, w *world, gateway *corev1.Pod, signal syscall.Signal) {
	p := w.newPool(t, 4)
	functions := p.tenants(lossInstances)
	tl := newTally()
	lone := startTraffic(t, p, tl, []*skipperpb.Function{p.function("lone")}, mix{senders: map[kind]int{socket: 1}, shortest: 45 * time.Second, once: true})
	tr := startTraffic(t, p, tl, functions, lossExtent(t).mix)
	for _, f := range functions {
		p.waitServing(t, f, lossInstances)
	}
	was := p.extprocRestarts(t, gateway)
	began := time.Now()
	if err := syscall.Kill(processOf(t, gateway, "extproc").pid, signal); err != nil {
		t.Fatal(err)
	}
	eventually(t, "extproc to be ready again", func() (bool, string) {
		n, ready := p.extprocState(t, gateway)
		return n > was && ready, fmt.Sprint(n, " restarts, ready ", ready)
	})
	back := time.Now()
	seen := tl.count()
	eventually(t, "requests afterwards", func() (bool, string) { return tl.count() >= seen+afterRestart, fmt.Sprint(tl.count()) })
	tr.stop()
	lone.wait()
	tl.wantNoLoss(t, whileAway(began, back))
	tl.wantNoneDeletedUnder(t, p.pods)
	p.waitForgotten(t)
	p.waitExtprocIdle(t, gateway)
}

// whileAway excuses what reached Envoy while its extproc was away: answered at once, with a word. What had an answer
// already is not excused.
func whileAway(from, to time.Time) func(outcome) string {
	return func(o outcome) string {
		refused := o.reason == reason.NoInstance || o.reason == reason.ShuttingDown || o.reason == reason.ControllerUnavailable
		if o.pod == "" && o.status == http.StatusServiceUnavailable && refused && o.ended.After(from) && o.began.Before(to.Add(time.Second)) {
			return "refused while extproc was away: " + string(o.reason)
		}
		return ""
	}
}

func (w *world) extprocRestarts(t *testing.T, gateway *corev1.Pod) int32 {
	t.Helper()
	n, _ := w.extprocState(t, gateway)
	return n
}

func (w *world) extprocState(t *testing.T, gateway *corev1.Pod) (restarts int32, ready bool) {
	t.Helper()
	p, err := w.kube.CoreV1().Pods(systemNamespace).Get(t.Context(), gateway.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == "extproc" {
			return s.RestartCount, s.Ready
		}
	}
	t.Fatalf("gateway %s has no extproc", gateway.Name)
	return 0, false
}

// waitExtprocIdle waits until extproc counts no request in progress.
func (w *world) waitExtprocIdle(t *testing.T, gateway *corev1.Pod) {
	t.Helper()
	eventually(t, "no request in progress in extproc's books", func() (bool, string) {
		text, err := w.kube.CoreV1().Pods(systemNamespace).ProxyGet("http", gateway.Name, extprocWebPort, "/metrics", nil).DoRaw(t.Context())
		if err != nil {
			return false, err.Error()
		}
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, "skipper_extproc_in_flight_requests "); ok {
				if strings.HasPrefix(value, "-") {
					t.Errorf("%s requests in progress", strings.TrimSpace(value))
				}
				return strings.TrimSpace(value) == "0", line
			}
		}
		return false, "no gauge in " + string(text)
	})
}
