package retire

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serving is a pod that serves tenant t1.
func serving(name string) *corev1.Pod {
	f := &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "t1", Scale: &skipperpb.Scale{MaxInstances: 3}}
	at := pool.FormatTime(noon)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: name, UID: types.UID("uid-" + name),
			Labels:      map[string]string{pool.LabelDeployment: "echo", pool.LabelTenant: "t1"},
			Annotations: map[string]string{pool.AnnotationTenant: "t1", pool.AnnotationFunction: string(fn.Marshal(f)), pool.AnnotationAssignedAt: at, pool.AnnotationReadyAt: at},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.1",
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

// world is a Retirer over a fake API server and a View that both know the pods.
type world struct {
	*Retirer
	api  *fake.Clientset
	view *pool.View

	mu sync.Mutex
	// The fields below are guarded by mu.
	inFlight map[string]InFlight
	frozen   bool
	told     []*skipperpb.Event
}

func newWorld(t *testing.T, pods ...*corev1.Pod) *world {
	t.Helper()
	w := &world{view: pool.NewView(), inFlight: map[string]InFlight{}}
	var objects []runtime.Object
	for _, p := range pods {
		objects = append(objects, p)
		w.view.Apply(pool.FromPod(p, pool.NewParser(1)))
	}
	w.api = fake.NewClientset(objects...)
	w.api.PrependReactor("delete", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) { return checkUID(w.api, a) })
	w.Retirer = New(Config{
		Pods: w.api.CoreV1(), View: w.view, Functions: pool.NewParser(1), Grace: time.Second,
		Limits: Limits{Timeout: 5 * time.Minute}, Unreadable: time.Minute,
		Progress: func(p pool.Pod) Progress {
			w.mu.Lock()
			defer w.mu.Unlock()
			return Progress{Acknowledged: true, InFlight: w.inFlight[p.UID]}
		},
		Frozen: func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.frozen
		},
		Event: func(e *skipperpb.Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, e)
		},
		Registerer: prometheus.NewRegistry(), Log: zap.NewNop(),
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return w
}

// checkUID does what the fake leaves out: a deletion must hold the pod's UID.
func checkUID(api *fake.Clientset, a k8stesting.Action) (bool, runtime.Object, error) {
	d := a.(k8stesting.DeleteActionImpl)
	obj, err := api.Tracker().Get(d.Resource, d.Namespace, d.Name)
	if err != nil {
		return true, nil, err
	}
	uid := d.DeleteOptions.Preconditions
	if uid == nil || uid.UID == nil || *uid.UID != obj.(*corev1.Pod).UID {
		return true, nil, apierrors.NewConflict(d.Resource.GroupResource(), d.Name, errors.New("precondition failed"))
	}
	return false, nil, nil
}

func (w *world) say(uid string, in InFlight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inFlight[uid] = in
}

func (w *world) names(t *testing.T) []string {
	t.Helper()
	list, err := w.api.CoreV1().Pods("prod").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	return names
}

func (w *world) pod(t *testing.T, name string) pool.Pod {
	t.Helper()
	p, ok := w.view.Named("prod", name)
	if !ok {
		t.Fatalf("pod %s is unknown", name)
	}
	return p
}

func after(d time.Duration) {
	<-time.NewTimer(d).C
	synctest.Wait()
}

func TestDrainWaitsForRequestsThenDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serving("a"), serving("b"))
		w.say("uid-a", InFlight{1, true})
		if err := w.Drain(t.Context(), w.pod(t, "a"), "scaled down"); err != nil {
			t.Fatal(err)
		}
		if p := w.pod(t, "a"); p.State() != pool.Draining || p.Routable() {
			t.Errorf("drained pod is %s", p.State())
		}
		k8s, err := w.api.CoreV1().Pods("prod").Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil || k8s.Annotations[pool.AnnotationDrainingAt] == "" {
			t.Errorf("annotations %v: %v", k8s.Annotations, err)
		}
		after(time.Minute)
		if diff := cmp.Diff([]string{"a", "b"}, w.names(t)); diff != "" {
			t.Errorf("pods with a request in progress (-want +got):\n%s", diff)
		}
		w.say("uid-a", InFlight{0, true})
		after(2 * time.Second)
		if diff := cmp.Diff([]string{"b"}, w.names(t)); diff != "" {
			t.Errorf("pods once it is empty (-want +got):\n%s", diff)
		}
		if err := w.Drain(t.Context(), w.pod(t, "a"), "again"); err != nil {
			t.Errorf("drain of a deleted pod: %v", err)
		}
	})
}

func TestDrainThatIsRefusedChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serving("a"))
		w.api.PrependReactor("patch", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "a", errors.New("no right"))
		})
		if err := w.Drain(t.Context(), w.pod(t, "a"), "scaled down"); !apierrors.IsForbidden(err) {
			t.Errorf("error %v", err)
		}
		if p := w.pod(t, "a"); !p.Routable() {
			t.Errorf("pod is %s, want routable", p.State())
		}
	})
}

func TestDrainOfUnknownOutcomeGoesOn(t *testing.T) {
	for what, failure := range map[string]error{
		"timeout":     context.DeadlineExceeded,
		"unavailable": apierrors.NewServiceUnavailable("down"),
		"cut off":     errors.New("connection reset"),
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { drainOfUnknownOutcome(t, failure) })
		})
	}
}

func drainOfUnknownOutcome(t *testing.T, failure error) {
	w := newWorld(t, serving("a"))
	w.say("uid-a", InFlight{1, true})
	var mu sync.Mutex
	failing := true
	w.api.PrependReactor("patch", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		return failing, nil, failure
	})
	if err := w.Drain(t.Context(), w.pod(t, "a"), "scaled down"); err != nil {
		t.Errorf("error %v, want the background to go on", err)
	}
	after(time.Minute)
	if p := w.pod(t, "a"); p.State() != pool.Draining {
		t.Errorf("pod is %s: others may see it draining", p.State())
	}
	mu.Lock()
	failing = false
	mu.Unlock()
	after(15 * time.Second)
	k8s, err := w.api.CoreV1().Pods("prod").Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || k8s.Annotations[pool.AnnotationDrainingAt] == "" {
		t.Errorf("annotations %v: %v", k8s.Annotations, err)
	}
}

func TestFrozenReplicaDeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := serving("dead")
		dead.Status.Phase = corev1.PodFailed
		w := newWorld(t)
		w.freeze(true)
		if err := w.api.Tracker().Add(dead); err != nil {
			t.Fatal(err)
		}
		w.view.Apply(pool.FromPod(dead, pool.NewParser(1)))
		after(time.Minute)
		if diff := cmp.Diff([]string{"dead"}, w.names(t)); diff != "" {
			t.Errorf("pods while frozen (-want +got):\n%s", diff)
		}
		w.freeze(false)
		after(2 * time.Second)
		if diff := cmp.Diff([]string{}, w.names(t)); diff != "" {
			t.Errorf("pods (-want +got):\n%s", diff)
		}
	})
}

func (w *world) freeze(frozen bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frozen = frozen
}

func TestUnreadablePodIsSaidOnceAndDeletedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		edited := serving("edited")
		edited.Annotations[pool.AnnotationTenant] = "t2"
		edited.Annotations[pool.AnnotationAssignedAt] = pool.FormatTime(time.Now())
		w := newWorld(t, edited, serving("fine"))
		w.say("uid-edited", InFlight{Known: true})
		after(30 * time.Second)
		if got := w.countUnreadable(); got != 1 {
			t.Errorf("%v pods are unreadable", got)
		}
		if got := len(w.names(t)); got != 2 {
			t.Errorf("%d pods are left, want both for a minute", got)
		}
		after(31 * time.Second)
		if diff := cmp.Diff([]string{"fine"}, w.names(t)); diff != "" {
			t.Errorf("pods (-want +got):\n%s", diff)
		}
		if got := w.countUnreadable(); got != 0 {
			t.Errorf("%v pods are unreadable after the deletion", got)
		}
	})
}

// Whoever edits a pod by hand must not cut what runs on it.
func TestPodThatIsEditedWhileItServesKeepsItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serving("busy"), serving("idle"))
		w.say("uid-busy", InFlight{Requests: 1, Known: true})
		w.say("uid-idle", InFlight{Known: true})
		after(time.Hour) // long after the claim
		for _, name := range []string{"busy", "idle"} {
			edited := serving(name)
			edited.Annotations[pool.AnnotationFunction] = "{"
			w.view.Apply(pool.FromPod(edited, pool.NewParser(1)))
		}
		for _, row := range []struct {
			after time.Duration
			want  []string
		}{
			{50 * time.Second, []string{"busy", "idle"}},
			{12 * time.Second, []string{"busy"}},
			{3 * time.Minute, []string{"busy"}},
			{time.Minute, []string{}},
		} {
			after(row.after)
			if diff := cmp.Diff(row.want, w.names(t)); diff != "" {
				t.Errorf("%s later: pods (-want +got):\n%s", row.after, diff)
			}
		}
	})
}

func TestDeleteGoesOnInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serving("a"))
		var failures int
		w.api.PrependReactor("delete", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
			if failures++; failures <= 3 {
				return true, nil, apierrors.NewServiceUnavailable("down")
			}
			return false, nil, nil
		})
		if err := w.Delete(t.Context(), w.pod(t, "a"), "released"); err == nil {
			t.Error("no error for the first failure")
		}
		if p := w.pod(t, "a"); p.State() != pool.Terminating {
			t.Errorf("pod is %s, want terminating", p.State())
		}
		if err := w.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := w.names(t); len(got) != 0 {
			t.Errorf("pods %v are left", got)
		}
	})
}

func TestDeleteNeverTouchesAnotherPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, serving("a"))
		known := w.pod(t, "a")
		others := known
		others.Key.Tenant = "t2"
		for what, err := range map[string]error{
			"delete": w.Delete(t.Context(), others, "x"),
			"drain":  w.Drain(t.Context(), others, "x"),
		} {
			if !errors.Is(err, ErrNotTheFunctions) {
				t.Errorf("%s of another tenant's pod: %v", what, err)
			}
		}
		w.DeleteSoon(others, "x")
		w.DrainSoon(others, "x")
		former := known
		former.UID = "its-predecessor"
		w.DeleteSoon(former, "x") // the name is another pod's now
		w.DrainSoon(former, "x")
		if err := w.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a"}, w.names(t)); diff != "" || w.pod(t, "a").State() != pool.Ready {
			t.Errorf("pod is %s, pods (-want +got):\n%s", w.pod(t, "a").State(), diff)
		}
		if err := w.Delete(t.Context(), former, "x"); err != nil {
			t.Errorf("delete of a pod that is gone: %v", err)
		}
	})
}

func TestSweepDeletesDeadAndRepairsAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead, edited := serving("dead"), serving("edited")
		dead.Status.Phase = corev1.PodFailed
		edited.Annotations[pool.AnnotationDrainingAt] = "soon"
		w := newWorld(t, dead, edited, serving("fine"))
		after(3 * time.Second)
		if diff := cmp.Diff([]string{"edited", "fine"}, w.names(t)); diff != "" {
			t.Errorf("pods (-want +got):\n%s", diff)
		}
		if p := w.pod(t, "edited"); p.DrainingAt.IsZero() {
			t.Error("the drain still has no beginning")
		}
		after(6 * time.Minute)
		if diff := cmp.Diff([]string{"fine"}, w.names(t)); diff != "" {
			t.Errorf("pods after the drain timeout (-want +got):\n%s", diff)
		}
	})
}

func TestOnlyTheResponsibleReplicaEndsDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serving("a")
		p.Annotations[pool.AnnotationDrainingAt] = pool.FormatTime(time.Now().Add(-time.Hour))
		w := newWorld(t)
		w.cfg.Responsible = func(k fn.Key) bool { return k.Tenant != "t1" }
		w.view.Apply(pool.FromPod(p, pool.NewParser(1)))
		after(time.Minute)
		if s := w.pod(t, "a").State(); s != pool.Draining {
			t.Errorf("pod is %s, want left to its replica", s)
		}
	})
}

func TestManyDeletionsAreOneEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pods []*corev1.Pod
		for i := range 50 {
			pods = append(pods, serving(fmt.Sprint("p", i)))
		}
		w := newWorld(t, pods...)
		for range 3 {
			for _, p := range w.view.All() {
				w.DeleteSoon(p, "x")
			}
		}
		if err := w.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := w.names(t); len(got) != 0 {
			t.Errorf("%d pods are left", len(got))
		}
	})
}
