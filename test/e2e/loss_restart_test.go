//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	skipperpb "skipper/proto"
)

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
		if err := p.waitRollout(t.Context(), p.system, controllerName); err != nil {
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
		p.waitExtproc(t, second, "requests in progress", func(n int) bool { return n > 0 })
		if err := p.kube.CoreV1().Pods(p.system).Delete(t.Context(), second.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s gateway %s is deleted", time.Now().Format(time.TimeOnly), second.Name)
		p.waitReplaced(t, second)
		t.Logf("%s gateway %s is gone, and another takes its place", time.Now().Format(time.TimeOnly), second.Name)
	})
	tl.wantNoLoss(t, never)
}

// scaleGateway sets the number of gateways and waits for it. The oldest stay when it falls.
func (w *world) scaleGateway(ctx context.Context, replicas int32) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := w.kube.AppsV1().Deployments(w.system).Patch(ctx, gatewayName, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("scale the gateway to %d: %w", replicas, err)
	}
	return w.waitRollout(ctx, w.system, gatewayName)
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

// waitReplaced waits until a gateway is gone and there are two again.
func (w *world) waitReplaced(t *testing.T, old *corev1.Pod) {
	t.Helper()
	eventually(t, "another gateway in place of "+old.Name, func() (bool, string) {
		pods := w.systemPods(t, gatewayName)
		ready := 0
		for _, p := range pods {
			if p.UID != old.UID && isReady(&p) {
				ready++
			}
		}
		return ready == 2 && len(pods) == 2, fmt.Sprint(ready, " ready of ", len(pods))
	})
}
