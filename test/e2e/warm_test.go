//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/proto/fn"
)

func TestColdThenWarm(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 2)
	first := mustEcho(t, p.get(t.Context(), p.function("a"), "/first"))
	if first.Tenant != p.tenant("a") {
		t.Errorf("the pod believes in tenant %q, want %q", first.Tenant, p.tenant("a"))
	}
	for range 20 {
		if again := mustEcho(t, p.get(t.Context(), p.function("a"), "/again")); again.PodUID != first.PodUID {
			t.Errorf("a warm request went to pod %s, the first to %s", again.PodUID, first.PodUID)
		}
	}
	other := mustEcho(t, p.get(t.Context(), p.function("b"), "/"))
	if other.PodUID == first.PodUID {
		t.Errorf("two tenants share pod %s", other.PodUID)
	}
	p.waitFull(t)
	p.wantClaims(t, p.tenant("a"), 1)
	p.wantClaims(t, p.tenant("b"), 1)
}

// A claim leaves behind what the contract says, for people and for other programs.
func TestClaimedPodIsLabelled(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 1)
	f := p.function("a")
	f.Metadata = "v7"
	uid := mustEcho(t, p.get(t.Context(), f, "/")).PodUID
	eventually(t, "annotation "+readyAtNote, func() (bool, string) {
		e, _ := p.pods.entry(uid)
		return e.pod != nil && e.pod.Annotations[readyAtNote] != "" && len(e.pod.OwnerReferences) == 0, p.pods.String()
	})
	e, _ := p.pods.entry(uid)
	notes := e.pod.Annotations
	if notes[tenantNote] != f.Tenant || e.pod.Labels[tenantLabel] != f.Tenant {
		t.Errorf("tenant is %q in the annotation and %q in the label, want %q", notes[tenantNote], e.pod.Labels[tenantLabel], f.Tenant)
	}
	kept, err := fn.Parse([]byte(notes[functionNote]))
	if err != nil {
		t.Fatalf("read annotation %s: %v: %s", functionNote, err, notes[functionNote])
	}
	if diff := cmp.Diff(f, kept, protocmp.Transform()); diff != "" {
		t.Errorf("function in the annotation (-want +got):\n%s", diff)
	}
	wantTimes(t, notes)
	if _, err := p.kube.AppsV1().ReplicaSets(p.functions).Get(t.Context(), notes[replicaSetNote], metav1.GetOptions{}); err != nil {
		t.Errorf("annotation %s: %v", replicaSetNote, err)
	}
}

func wantTimes(t *testing.T, notes map[string]string) {
	t.Helper()
	assigned, err := time.Parse(time.RFC3339, notes[assignedAtNote])
	if err != nil {
		t.Error(err)
	}
	ready, err := time.Parse(time.RFC3339, notes[readyAtNote])
	if err != nil {
		t.Error(err)
	}
	if ready.Before(assigned.Truncate(time.Second)) {
		t.Errorf("ready at %s, before it was assigned at %s", notes[readyAtNote], notes[assignedAtNote])
	}
}

// More tenants than the pool has pods come at once: all are served, each by a pod of its own, while the pool grows back.
// Not parallel: how fast pods start is the node's business, and others would slow it down.
func TestTwentyTenantsAtOnce(t *testing.T) {
	const tenants, replicas = 20, 10
	p := newWorld(t).newPool(t, replicas)
	answers := atOnce(tenants, func(i int) answer {
		return p.get(t.Context(), p.function(fmt.Sprint(i)), "/")
	})
	if n := distinct(podsOf(t, answers)); n != tenants {
		t.Errorf("%d tenants were served by %d pods", tenants, n)
	}
	p.waitFull(t)
	p.wantClaims(t, "", tenants)
}

// Requests in other letter cases and spellings name the same function.
func TestSpellingsOfOneFunction(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 1)
	uid := mustEcho(t, p.get(t.Context(), p.function("a"), "/")).PodUID
	camel, err := json.Marshal(map[string]any{
		"scale": map[string]any{"maxInstances": 10}, "tenant": p.tenant("a"), "deployment": p.name,
		"namespace": p.functions, "unknownMember": []int{1},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := p.request(t.Context(), http.MethodGet, nil, "/", nil)
	r.Header["x-SKIPPER-function"] = []string{string(camel)}
	if again := mustEcho(t, p.send(r)); again.PodUID != uid {
		t.Errorf("another spelling went to pod %s, want %s", again.PodUID, uid)
	}
	p.waitFull(t)
	p.wantClaims(t, "", 1)
}
