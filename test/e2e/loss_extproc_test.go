//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/proto/reason"
)

// extprocWebPort serves extproc's metrics.
const extprocWebPort = "8081"

// pastHeartbeats is when a function that only heartbeats kept would have lost its pod (lossSettings: 15 s of silence,
// 5 s of stabilisation, 10 s of grace).
const pastHeartbeats = 40 * time.Second

// An extproc that is killed, or stopped alone, cuts nothing that runs: it loses what it has not answered yet, and what
// comes until it is back. A pod lives as long as Envoy reports a request in progress on it, even if no extproc has
// heard of that request; and afterwards every count is back at zero.
func deadExtprocStory(t *testing.T, w *world) {
	gateway := w.ownGateway(t)
	skipUnlessNode(t, gateway.Status.HostIP)
	direct := *w
	direct.gateway = "http://" + net.JoinHostPort(gateway.Status.PodIP, gatewayPort)
	p := direct.newPool(t, 4)
	functions := p.tenants(lossInstances)
	tl := newTally()
	// One WebSocket is alone on its function: after the death only Envoy knows of it.
	lone := p.dialWebSocket(t, p.function("lone"))
	exchange(t, lone, "before")
	want := lossExtent(t)
	tr := startTraffic(t, p, tl, functions, want.mix)
	for _, f := range functions {
		p.waitServing(t, f, lossInstances)
	}
	away := []absence{p.endExtproc(t, gateway, syscall.SIGKILL)}
	for i := 0; tl.count() < want.requests; i++ {
		if i == 0 && want.requests > lossRequests { // again and again, the kubelet would wait longer each time
			away = append(away, p.endExtproc(t, gateway, syscall.SIGTERM))
		}
		seen := tl.count()
		eventually(t, "requests afterwards", func() (bool, string) { return tl.count() >= seen+afterRestart, fmt.Sprint(tl.count()) })
	}
	tr.stop()
	tl.wantNoLoss(t, refusedIn(away))
	tl.wantNoneDeletedUnder(t, p.pods)
	for time.Since(away[len(away)-1].from) < pastHeartbeats {
		exchange(t, lone, "after")
		pauseABeat(t)
	}
	if held := p.pods.held(p.tenant("lone")); len(held) != 1 {
		t.Errorf("the function of a WebSocket has %d pods:%s", len(held), p.pods)
	}
	if err := lone.Close(websocket.StatusNormalClosure, "done"); err != nil {
		t.Errorf("close WebSocket: %v", err)
	}
	p.waitForgotten(t)
	p.waitExtproc(t, gateway, "no request in progress", func(n int) bool { return n == 0 })
}

// ownGateway is a gateway of one test beside the others. No Service leads to it, so what happens to it concerns nobody
// else.
func (w *world) ownGateway(t *testing.T) *corev1.Pod {
	t.Helper()
	model, err := w.kube.AppsV1().Deployments(w.system).Get(t.Context(), gatewayName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods := w.kube.CoreV1().Pods(w.system)
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: suiteLabel + "-gateway-", Labels: map[string]string{suiteLabel: "true"}},
		Spec:       model.Spec.Template.Spec,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	name := pod.Name
	afterwards(t, "remove gateway "+name, func(ctx context.Context) error {
		// In good order, so that its extproc says goodbye. Else a controller that starts soon after, and has no other
		// to ask, lets new pods wait until that one's table has expired.
		if err := ignore(pods.Delete(ctx, name, metav1.DeleteOptions{}), apierrors.IsNotFound); err != nil {
			return err
		}
		return poll(ctx, func() bool {
			_, err := pods.Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	})
	eventually(t, "gateway "+name, func() (bool, string) {
		if pod, err = pods.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		return isReady(pod), fmt.Sprintf("%+v", pod.Status.Conditions)
	})
	return pod
}

// absence is when an extproc did not answer.
type absence struct{ from, to time.Time }

// endExtproc sends a signal to the extproc of a gateway and waits until the kubelet has started it anew.
func (w *world) endExtproc(t *testing.T, gateway *corev1.Pod, signal syscall.Signal) absence {
	t.Helper()
	was, _ := w.extprocState(t, gateway)
	a := absence{from: time.Now()}
	if err := syscall.Kill(processOf(t, gateway, "extproc").pid, signal); err != nil {
		t.Fatal(err)
	}
	eventually(t, "extproc to be ready again", func() (bool, string) {
		n, ready := w.extprocState(t, gateway)
		return n > was && ready, fmt.Sprint(n, " restarts, ready ", ready)
	})
	a.to = time.Now()
	return a
}

// refusedIn excuses what reached Envoy while its extproc was away: answered with a word, and sent to no pod. What had
// an answer already is not excused.
func refusedIn(away []absence) func(outcome) string {
	return func(o outcome) string {
		if o.pod != "" || o.status != http.StatusServiceUnavailable {
			return ""
		}
		switch o.reason {
		case reason.NoInstance, reason.ShuttingDown, reason.ControllerUnavailable:
		default:
			return ""
		}
		for _, a := range away {
			if o.ended.After(a.from) && o.began.Before(a.to) {
				return "refused while extproc was away: " + string(o.reason)
			}
		}
		return ""
	}
}

func (w *world) extprocState(t *testing.T, gateway *corev1.Pod) (restarts int32, ready bool) {
	t.Helper()
	p, err := w.kube.CoreV1().Pods(w.system).Get(t.Context(), gateway.Name, metav1.GetOptions{})
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

// waitExtproc waits for a number of requests in progress by extproc's books, which never fall below zero.
func (w *world) waitExtproc(t *testing.T, gateway *corev1.Pod, what string, fits func(int) bool) {
	t.Helper()
	eventually(t, what+" in extproc's books", func() (bool, string) {
		text, err := w.kube.CoreV1().Pods(w.system).ProxyGet("http", gateway.Name, extprocWebPort, "/metrics", nil).DoRaw(t.Context())
		if err != nil {
			return false, err.Error()
		}
		for line := range strings.Lines(string(text)) {
			value, ok := strings.CutPrefix(line, "skipper_extproc_in_flight_requests ")
			if !ok {
				continue
			}
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil || n < 0 {
				t.Errorf("%q requests in progress: %v", value, err)
			}
			return fits(n), line
		}
		return false, "no gauge in " + string(text)
	})
}
