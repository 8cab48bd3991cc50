package acquire

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/controller/pool"
	"skipper/proto/fn"
)

func TestReplacementsComeFromActiveReplicaSetsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := newWorld(t, 3), testFunction("t1")
		p, err := w.Replace(t.Context(), f)
		if err != nil || !p.Routable() {
			t.Fatalf("pod is %s: %v", p.State(), err)
		}
		w.view.ApplyReplicaSet(pool.ReplicaSet{Namespace: "prod", Name: "echo-rs", Deployment: "echo", Replicas: 0})
		if _, err := w.Replace(t.Context(), f); !errors.Is(err, errUnfit) || causeOf(err) != PoolEmpty {
			t.Errorf("from a ReplicaSet that was scaled to zero: %v", err)
		}
		w.settled()
		if n := w.pods()[pool.Ready]; n != 1 || w.posts() != 1 {
			t.Errorf("%d instances and %d posts, want 1 and 1", n, w.posts())
		}
	})
}

func TestReplacementDoesNotWaitForAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, began := newWorld(t, 0), time.Now()
		if _, err := w.Replace(t.Context(), testFunction("t1")); causeOf(err) != PoolEmpty {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took > 2*replacementWait {
			t.Errorf("waited for %s", took)
		}
		w.addPods(1)
		w.answers(slow(10 * time.Second)) // but for its answer it does
		if _, err := w.Replace(t.Context(), testFunction("t1")); err != nil {
			t.Error(err)
		}
		w.settled()
	})
}

func TestReplacementThatRefusesIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5)
		w.answers(refuse)
		if _, err := w.Replace(t.Context(), testFunction("t1")); causeOf(err) != AssignRejected {
			t.Errorf("error %v", err)
		}
		w.settled()
		if n := w.pods()[pool.Unassigned]; n != 2 || w.posts() != 3 {
			t.Errorf("%d pods left after %d posts, want 2 and 3", n, w.posts())
		}
	})
}

func TestRewriteChangesTheAnnotationAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := newWorld(t, 1), testFunction("t1")
		p, err := w.Acquire(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		changed := proto.CloneOf(f)
		changed.Scale.MaxInstances = 77
		if err := w.Rewrite(p, changed); err != nil {
			t.Fatal(err)
		}
		w.settled()
		k8s, err := w.api.CoreV1().Pods("prod").Get(t.Context(), p.Name, metav1.GetOptions{})
		if err != nil || k8s.Annotations[pool.AnnotationFunction] != string(fn.Marshal(changed)) || k8s.Annotations[pool.AnnotationReadyAt] == "" {
			t.Errorf("annotations %v: %v", k8s.Annotations, err)
		}
		if now, _ := w.view.Pod(p.UID); !now.Routable() || now.Function.GetScale().GetMaxInstances() != 77 {
			t.Errorf("pod is %s with %v", now.State(), now.Function)
		}
		changed.Metadata = strings.Repeat("x", fn.MaxJSONBytes)
		if err := w.Rewrite(p, changed); !errors.Is(err, fn.ErrTooLarge) {
			t.Errorf("error %v", err)
		}
		w.settled()
	})
}
