//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	skipperpb "skipper/proto"
)

// suiteLabel marks what the tests made, so that leftovers can be found.
const suiteLabel = "skipper-e2e"

// stopSeconds is the grace period of the tests' pods.
const stopSeconds = 10

// pool is a Deployment of one test, and what became of its pods.
type pool struct {
	*world
	name string
	size int // unclaimed pods that the ReplicaSet keeps
	pods *ledger
}

// newPool makes a pool with ready pods and removes it with all its pods at the end of the test.
func (w *world) newPool(t *testing.T, replicas int32, edits ...func(*appsv1.Deployment)) *pool {
	t.Helper()
	model, err := w.kube.AppsV1().Deployments(w.functions).Get(t.Context(), modelPool, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	name := poolName(t.Name())
	d := copyOf(model, name, replicas)
	for _, edit := range edits {
		edit(d)
	}
	p := &pool{world: w, name: name, size: int(replicas), pods: startLedger(t, w.kube, w.functions, name)}
	afterwards(t, "remove pool "+name, func(ctx context.Context) error { return w.sweep(ctx, poolLabel+"="+name) })
	if _, err := w.kube.AppsV1().Deployments(w.functions).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.waitFull(t)
	return p
}

// poolName is unique, and tells the test.
func poolName(test string) string {
	words := regexp.MustCompile("[^a-z0-9]+").ReplaceAllString(strings.ToLower(strings.TrimPrefix(test, "Test")), "-")
	if len(words) > 28 {
		words = words[:28]
	}
	return fmt.Sprintf("e2e-%s-%s", strings.Trim(words, "-"), rand.String(5))
}

// copyOf is the model pool under another name.
func copyOf(model *appsv1.Deployment, name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{poolLabel: name, suiteLabel: "true"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: model.Namespace, Labels: labels},
		Spec:       *model.Spec.DeepCopy(),
	}
	grace := int64(stopSeconds)
	d.Spec.Replicas = &replicas
	d.Spec.Selector.MatchLabels = map[string]string{poolLabel: name}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec.TerminationGracePeriodSeconds = &grace
	return d
}

// withArgs adds flags of the example function.
func withArgs(args ...string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		c := &d.Spec.Template.Spec.Containers[0]
		c.Args = append(c.Args, args...)
	}
}

// withH2C makes the pool speak HTTP/2 without TLS.
func withH2C(d *appsv1.Deployment) {
	if d.Spec.Template.Annotations == nil {
		d.Spec.Template.Annotations = map[string]string{}
	}
	d.Spec.Template.Annotations[protocolNote] = "h2c"
}

// tenant is a name that no other pool's tenants have.
func (p *pool) tenant(name string) string { return p.name + "." + name }

// function is the pool as used by a tenant, with one instance at least and no target.
func (p *pool) function(name string) *skipperpb.Function {
	return &skipperpb.Function{
		Namespace: p.functions, Deployment: p.name, Tenant: p.tenant(name),
		Scale: &skipperpb.Scale{MinInstances: 0, MaxInstances: 10},
	}
}

// oneshot is a function with a pod for each request.
func (p *pool) oneshot(name string) *skipperpb.Function {
	f := p.function(name)
	f.Oneshot = true
	return f
}

// waitKnown waits until Skipper has heard of a pool that never had a pod: before, there is no such function.
func (p *pool) waitKnown(t *testing.T, tenant string) {
	t.Helper()
	eventually(t, "Skipper to know pool "+p.name, func() (bool, string) {
		r := p.request(t.Context(), http.MethodGet, p.function(tenant), "/", nil)
		r.Header.Set("Grpc-Timeout", "2S") // 404 comes at once, any other answer by then
		a := p.send(r)
		return a.err == nil && a.status != http.StatusNotFound, a.String()
	})
}

// waitFull waits until the pool has as many unclaimed, ready pods as its ReplicaSet keeps: a smaller number is one that
// the count only passes through.
func (p *pool) waitFull(t *testing.T) {
	t.Helper()
	p.waitFree(t, p.size)
}

// waitFree waits for n unclaimed, ready pods.
func (p *pool) waitFree(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d free pods in pool %s", n, p.name), func() (bool, string) {
		return len(p.pods.free()) == n, p.pods.String()
	})
}

// waitGone waits until a pod exists no more.
func (p *pool) waitGone(t *testing.T, uid types.UID) {
	t.Helper()
	eventually(t, fmt.Sprintf("end of pod %s", uid), func() (bool, string) {
		e, known := p.pods.entry(uid)
		return known && e.gone, p.pods.String()
	})
}

// scale sets the number of unclaimed pods that the ReplicaSet keeps, without waiting for it.
func (p *pool) scale(t *testing.T, replicas int32) {
	t.Helper()
	p.size = int(replicas)
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"replicas": replicas}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.kube.AppsV1().Deployments(p.functions).Patch(t.Context(), p.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// settle returns when the ledger has everything that happened in the pool before the call: events come in order, so
// it marks a free pod and waits for that mark.
func (p *pool) settle(t *testing.T) {
	t.Helper()
	mark := rand.String(10)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{settleNote: mark}}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a pod to mark in pool "+p.name, func() (bool, string) {
		for _, e := range p.pods.free() {
			_, err = p.kube.CoreV1().Pods(p.functions).Patch(t.Context(), e.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			if err == nil {
				return true, ""
			}
		}
		return false, fmt.Sprint(err, p.pods)
	})
	eventually(t, "the mark on a pod of pool "+p.name, func() (bool, string) {
		marked := p.pods.find(func(e entry) bool { return e.pod.Annotations[settleNote] == mark })
		return len(marked) == 1, p.pods.String()
	})
}

// wantClaims fails unless the tenant ("" is any) has claimed exactly n pods, ever.
func (p *pool) wantClaims(t *testing.T, tenant string, n int) {
	t.Helper()
	p.settle(t)
	if got := len(p.pods.claimed(tenant)); got != n {
		t.Errorf("tenant %q of pool %s has claimed %d pods, want %d:%s", tenant, p.name, got, n, p.pods)
	}
}

// sweep removes the Deployments with a label and all pods with it, claimed ones too, which no ReplicaSet owns.
func (w *world) sweep(ctx context.Context, selector string) error {
	list := metav1.ListOptions{LabelSelector: selector}
	foreground, now := metav1.DeletePropagationForeground, int64(0)
	err := w.kube.AppsV1().Deployments(w.functions).DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &foreground}, list)
	if err != nil {
		return fmt.Errorf("delete deployments with %s: %w", selector, err)
	}
	var state string
	err = poll(ctx, func() bool {
		err := w.kube.CoreV1().Pods(w.functions).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, list)
		left, listErr := w.left(ctx, list)
		state = fmt.Sprintf("%d objects left, %v, %v", left, ignore(err, apierrors.IsNotFound), listErr)
		return listErr == nil && left == 0
	})
	if err != nil {
		return fmt.Errorf("wait for the end of what has %s: %w: %s", selector, err, state)
	}
	return nil
}

// left counts what sweep has still to wait for.
func (w *world) left(ctx context.Context, list metav1.ListOptions) (int, error) {
	deployments, err := w.kube.AppsV1().Deployments(w.functions).List(ctx, list)
	if err != nil {
		return 0, err
	}
	pods, err := w.kube.CoreV1().Pods(w.functions).List(ctx, list)
	if err != nil {
		return 0, err
	}
	return len(deployments.Items) + len(pods.Items), nil
}
