//go:build e2e

package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skipper/proto/reason"
)

// steadyRequests in a row must be right before a function counts as well again.
const steadyRequests = 30

// A pod deleted behind Skipper's back goes out of routing, and another takes its place.
func TestDeletedPodIsReplaced(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 2)
	first := mustEcho(t, p.get(t.Context(), p.function("a"), "/"))
	other := mustEcho(t, p.get(t.Context(), p.function("b"), "/"))
	now := int64(0)
	err := p.kube.CoreV1().Pods(p.functions).Delete(t.Context(), first.PodName, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil {
		t.Fatal(err)
	}
	p.waitGone(t, first.PodUID)
	second := p.waitAnswer(t, "a", first.PodUID)
	p.wantSteady(t, "a", second)
	p.wantSteady(t, "b", other.PodUID)
	p.waitFull(t)
	p.wantClaims(t, p.tenant("a"), 2)
}

// A pod deleted in the usual way, as by a drained node, is no instance from that moment.
func TestEvictedPodIsReplaced(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 2)
	first := mustEcho(t, p.get(t.Context(), p.function("a"), "/"))
	if err := p.kube.CoreV1().Pods(p.functions).Delete(t.Context(), first.PodName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	second := p.waitAnswer(t, "a", first.PodUID)
	p.wantSteady(t, "a", second)
	p.waitGone(t, first.PodUID)
	p.waitFull(t)
	p.wantClaims(t, p.tenant("a"), 2)
}

// A killed program is started again by the kubelet in the same pod, which has forgotten its tenant: it serves again
// once it has the assignment again, or it is replaced.
func TestKilledProcessIsReplaced(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 2)
	first := mustEcho(t, p.get(t.Context(), p.function("a"), "/"))
	e, _ := p.pods.entry(first.PodUID)
	processOf(t, e.pod, "echo").kill(t)
	eventually(t, "the kubelet's word that the program ended", func() (bool, string) {
		e, _ := p.pods.entry(first.PodUID)
		return e.gone || restarts(e) > 0, p.pods.String()
	})
	p.waitAnswer(t, "a", "")
	// While it was away, a request may have had another pod assigned: then both serve.
	for range steadyRequests {
		if e := mustEcho(t, p.get(t.Context(), p.function("a"), "/")); e.Tenant != p.tenant("a") {
			t.Fatalf("a request of tenant %s was answered for tenant %q", p.tenant("a"), e.Tenant)
		}
	}
	p.waitFull(t)
}

func restarts(e entry) int32 {
	n := int32(0)
	for _, s := range e.pod.Status.ContainerStatuses {
		n += s.RestartCount
	}
	return n
}

// waitAnswer asks until a pod other than the lost one answers, and says which. Until Skipper has heard of a death, it
// may still send a request there; such a request ends with one of the words that stand for a dead pod.
func (p *pool) waitAnswer(t *testing.T, tenant string, lost types.UID) types.UID {
	t.Helper()
	var uid types.UID
	eventually(t, "an answer of another pod", func() (bool, string) {
		a := p.get(t.Context(), p.function(tenant), "/")
		if a.status != http.StatusOK {
			wantDeathWord(t, a)
			return false, a.String()
		}
		uid = mustEcho(t, a).PodUID
		return uid != lost, a.String()
	})
	return uid
}

// wantDeathWord: a pod that was started anew refuses requests itself, with 421, since it has forgotten its tenant.
func wantDeathWord(t *testing.T, a answer) {
	t.Helper()
	if a.status == http.StatusMisdirectedRequest && strings.HasPrefix(string(a.body), "misdirected") {
		return
	}
	switch a.reason() {
	case reason.ConnectFailed, reason.InstanceReset, reason.NoInstance:
	default:
		t.Errorf("a request to a dead pod: %s", a)
	}
}

// wantSteady: from now on, every request is answered by this pod.
func (p *pool) wantSteady(t *testing.T, tenant string, uid types.UID) {
	t.Helper()
	for range steadyRequests {
		if e := mustEcho(t, p.get(t.Context(), p.function(tenant), "/")); e.PodUID != uid {
			t.Fatalf("tenant %s moved from pod %s to %s", tenant, uid, e.PodUID)
		}
	}
}
