package watch

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/protobuf/testing/protocmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"skipper/controller/pool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func functionPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "prod", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.Now(),
			Labels: map[string]string{pool.LabelDeployment: "echo"},
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"},
	}
}

func replicaSet(name string) *appsv1.ReplicaSet {
	r := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.Now()}}
	r.Spec.Template.Labels = map[string]string{pool.LabelDeployment: name}
	return r
}

// world is a running Watch over a fake API server.
type world struct {
	*Watch
	api      *fake.Clientset
	view     *pool.View
	registry *prometheus.Registry
	mu       sync.Mutex
	members  []Member // guarded by mu
}

func newWorld(t *testing.T, api *fake.Clientset) *world {
	t.Helper()
	w := &world{api: api, view: pool.NewView(), registry: prometheus.NewRegistry()}
	watch, err := New(Config{
		Client: api, FunctionNamespaces: []string{"prod"}, View: w.view, Functions: pool.NewParser(10),
		OwnNamespace: "skipper", OwnSelector: "app=controller", Registerer: w.registry, Log: zap.NewNop(),
		OwnPods: func(m []Member) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.members = m
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Watch = watch
	if w.HasSynced() {
		t.Error("synced before it ran")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	if err := w.WaitSynced(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) ring() []Member {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.members
}

func (w *world) events(resource, kind string) float64 {
	return testutil.ToFloat64(w.metrics.events.WithLabelValues(resource, kind))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestWatchBringsPodsIntoTheView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stranger := functionPod("stranger")
		stranger.Labels = nil
		w := newWorld(t, fake.NewClientset(functionPod("a"), stranger, replicaSet("early")))
		if n := len(w.view.All()); n != 1 || !w.view.Known("prod", "early") {
			t.Fatalf("%d pods after the initial list, want 1", n)
		}
		pods := w.api.CoreV1().Pods("prod")
		must(pods.Create(t.Context(), functionPod("b"), metav1.CreateOptions{}))
		must(w.api.AppsV1().ReplicaSets("prod").Create(t.Context(), replicaSet("late"), metav1.CreateOptions{}))
		changed := functionPod("a")
		changed.Status.PodIP = "10.0.0.9"
		must(pods.Update(t.Context(), changed, metav1.UpdateOptions{}))
		synctest.Wait()
		if p, _ := w.view.Named("prod", "a"); p.IP != "10.0.0.9" {
			t.Errorf("pod a has address %q", p.IP)
		}
		if n := len(w.view.Unassigned("prod", "echo")); n != 2 || !w.view.Known("prod", "late") {
			t.Errorf("%d pods, want 2", n)
		}
		if err := pods.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, ok := w.view.Named("prod", "a"); ok {
			t.Error("deleted pod is still known")
		}
		if a, d := w.events(functionPods, kindAdd), w.events(functionPods, kindDelete); a != 2 || d != 1 {
			t.Errorf("%v additions and %v deletions counted, want 2 and 1", a, d)
		}
	})
}

func TestWatchTellsOfReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := func(name, ip string, ready corev1.ConditionStatus) *corev1.Pod {
			p := functionPod(name)
			p.Namespace, p.Labels = "skipper", map[string]string{"app": "controller"}
			p.Status.PodIP = ip
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
			return p
		}
		terminating := own("c", "10.1.0.3", corev1.ConditionTrue)
		terminating.DeletionTimestamp, terminating.Finalizers = &metav1.Time{Time: time.Now()}, []string{"x/y"}
		w := newWorld(t, fake.NewClientset(own("b", "10.1.0.2", corev1.ConditionFalse), own("a", "10.1.0.1", corev1.ConditionTrue), terminating, own("no-ip", "", corev1.ConditionTrue)))
		want := []Member{{"10.1.0.1", true, false}, {"10.1.0.2", false, false}, {"10.1.0.3", true, true}}
		if diff := cmp.Diff(want, w.ring()); diff != "" {
			t.Errorf("members (-want +got):\n%s", diff)
		}
		if err := w.api.CoreV1().Pods("skipper").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if diff := cmp.Diff(want[1:], w.ring()); diff != "" {
			t.Errorf("members (-want +got):\n%s", diff)
		}
	})
}

func TestHandlersTakeTombstonesAndResyncs(t *testing.T) {
	view := pool.NewView()
	w, err := New(Config{Client: fake.NewClientset(), View: view, Functions: pool.NewParser(1), Registerer: prometheus.NewRegistry(), Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	h := w.podHandler()
	raw := functionPod("a")
	raw.ResourceVersion = "5"
	p := see(raw, w.cfg.Functions)
	h.OnAdd(p, true)
	h.OnUpdate(p, p)
	if n := testutil.ToFloat64(w.metrics.events.WithLabelValues(functionPods, kindResync)); n != 1 {
		t.Errorf("%v resyncs counted, want 1", n)
	}
	h.OnDelete(cache.DeletedFinalStateUnknown{Key: "prod/a", Obj: p})
	if n := len(view.All()); n != 0 {
		t.Errorf("%d pods after a tombstone, want 0", n)
	}
	h.OnDelete(cache.DeletedFinalStateUnknown{Key: "prod/a", Obj: "nonsense"})
	h.OnAdd("nonsense", false)
	h.OnUpdate("nonsense", nil)
	h.OnDelete(nil)
}

// A watch that was away shows a pod that took over a name as an update of the
// one that had it before.
func TestPodThatTookOverANameReplacesTheOther(t *testing.T) {
	view := pool.NewView()
	w, err := New(Config{Client: fake.NewClientset(), View: view, Functions: pool.NewParser(1), Registerer: prometheus.NewRegistry(), Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	before := functionPod("a")
	before.ResourceVersion = "5"
	after := before.DeepCopy()
	after.UID, after.ResourceVersion = "uid-new", "9"
	h := w.podHandler()
	first := see(before, w.cfg.Functions)
	h.OnAdd(first, true)
	h.OnUpdate(first, see(after, w.cfg.Functions))
	all := view.All()
	if len(all) != 1 || all[0].UID != "uid-new" {
		t.Errorf("pods %v, want the new one", all)
	}
	if named, ok := view.Named("prod", "a"); !ok || named.UID != "uid-new" {
		t.Errorf("pod of that name is %q", named.UID)
	}
}

func TestLag(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(d)) }
	deletion := at(20 * time.Second)
	grace := int64(30)
	tests := []struct {
		name  string
		event func(m *metrics)
		count uint64
		sum   float64
	}{
		{"added", func(m *metrics) {
			m.added(ownPods, &metav1.ObjectMeta{CreationTimestamp: at(-3 * time.Second)}, false, now)
		}, 1, 3},
		{"initial list", func(m *metrics) { m.added(ownPods, &metav1.ObjectMeta{CreationTimestamp: at(-time.Hour)}, true, now) }, 0, 0},
		{"clocks apart", func(m *metrics) { m.added(ownPods, &metav1.ObjectMeta{CreationTimestamp: at(time.Second)}, false, now) }, 1, 0},
		{"deleted", func(m *metrics) {
			m.deleted(ownPods, &metav1.ObjectMeta{DeletionTimestamp: &deletion, DeletionGracePeriodSeconds: &grace}, now)
		}, 1, 10},
		{"deleted without a time", func(m *metrics) { m.deleted(ownPods, &metav1.ObjectMeta{}, now) }, 0, 0},
	}
	for _, tt := range tests {
		r := prometheus.NewRegistry()
		m := newMetrics(r, func() bool { return false })
		tt.event(m)
		count, sum := gathered(t, r)
		if count != tt.count || sum != tt.sum {
			t.Errorf("%s: %d observations of %v s, want %d of %v", tt.name, count, sum, tt.count, tt.sum)
		}
	}
}

func gathered(t *testing.T, r *prometheus.Registry) (count uint64, sum float64) {
	t.Helper()
	for _, f := range must(r.Gather()) {
		if f.GetType() != dto.MetricType_HISTOGRAM {
			continue
		}
		for _, m := range f.GetMetric() {
			count += m.GetHistogram().GetSampleCount()
			sum += m.GetHistogram().GetSampleSum()
		}
	}
	return count, sum
}

// TestStripLosesNothingThatIsRead fills a pod with what a cluster fills it with.
func TestStripLosesNothingThatIsRead(t *testing.T) {
	f := []byte(`{"namespace":"prod","deployment":"echo","tenant":"t1","scale":{"max_instances":1}}`)
	now := metav1.Now()
	p := functionPod("a")
	p.Labels[pool.LabelTenant], p.Labels[corev1.LabelTopologyZone] = "t1", "z1"
	p.Annotations = map[string]string{pool.AnnotationFunction: string(f), pool.AnnotationAssignedAt: "2026-03-01T12:00:00Z", pool.AnnotationTenant: "t1", "other/x": "y"}
	p.ResourceVersion, p.DeletionTimestamp, p.DeletionGracePeriodSeconds = "7", &now, ptr(int64(30))
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "Other"}, {Kind: "ReplicaSet", Name: "rs", Controller: ptr(true)}}
	p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "SECRET", Value: "x"}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, Message: "long"}, {Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", RestartCount: 3, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}}}
	w := &Watch{cfg: Config{Functions: pool.NewParser(10)}}
	got := must(w.strip(p)).(*seen)
	want := pool.FromPod(p, w.cfg.Functions)
	if diff := cmp.Diff(want, got.pod, protocmp.Transform()); diff != "" || got.pod.Zone != "z1" || got.pod.Function == nil {
		t.Errorf("what is read (-want +got):\n%s", diff)
	}
	meta := metav1.ObjectMeta{
		Namespace: "prod", Name: "a", UID: "uid-a", ResourceVersion: "7", CreationTimestamp: p.CreationTimestamp,
		DeletionTimestamp: &now, DeletionGracePeriodSeconds: ptr(int64(30)),
	}
	if diff := cmp.Diff(meta, got.ObjectMeta); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if again := must(w.strip(got)); again != any(got) {
		t.Errorf("stripped again: %v, want the same", again)
	}
	r := replicaSet("rs")
	r.Spec.Replicas, r.Annotations = ptr(int32(0)), map[string]string{"deployment.kubernetes.io/revision": "7", "x": "y"}
	if diff := cmp.Diff(pool.FromReplicaSet(r), pool.FromReplicaSet(must(w.strip(r)).(*appsv1.ReplicaSet))); diff != "" {
		t.Errorf("what is read of a ReplicaSet (-whole +stripped):\n%s", diff)
	}
}

func ptr[T any](v T) *T { return &v }
