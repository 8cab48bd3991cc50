package apistub_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"

	"skipper/test/bench/internal/apistub"
)

func pod(name, of string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"of": of}}}
}

// start serves the three pods a, b and c; c is of another kind.
func start(t *testing.T, contentType string) (*apistub.Server, *rest.Config) {
	t.Helper()
	s, err := apistub.New()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Load(pod("a", "x"), pod("b", "x"), pod("c", "y")); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return s, &rest.Config{Host: web.URL, ContentConfig: rest.ContentConfig{ContentType: contentType, AcceptContentTypes: contentType}}
}

var contentTypes = []string{"application/json", "application/vnd.kubernetes.protobuf"}

func names(pods []corev1.Pod) []string {
	var out []string
	for i := range pods {
		out = append(out, pods[i].Name)
	}
	return out
}

func TestList(t *testing.T) {
	for _, contentType := range contentTypes {
		_, cfg := start(t, contentType)
		pods := kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods("ns")
		for _, row := range []struct {
			options metav1.ListOptions
			want    []string
			more    bool
		}{
			{metav1.ListOptions{}, []string{"a", "b", "c"}, false},
			{metav1.ListOptions{LabelSelector: "of=x"}, []string{"a", "b"}, false},
			{metav1.ListOptions{FieldSelector: "metadata.name=c"}, []string{"c"}, false},
			{metav1.ListOptions{Limit: 2}, []string{"a", "b"}, true},
			{metav1.ListOptions{Limit: 2, Continue: "2"}, []string{"c"}, false},
		} {
			got, err := pods.List(t.Context(), row.options)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, names(got.Items)); diff != "" || (got.Continue != "") != row.more || got.ResourceVersion != "3" {
				t.Errorf("%s %+v: continue %q, version %s (-want +got):\n%s", contentType, row.options, got.Continue, got.ResourceVersion, diff)
			}
		}
	}
}

func TestWatchShowsWhatChanges(t *testing.T) {
	for _, contentType := range contentTypes {
		s, cfg := start(t, contentType)
		pods := kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods("ns")
		w, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "3", LabelSelector: "of=x"})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []*corev1.Pod{pod("z", "y"), pod("d", "x"), pod("a", "x")} {
			if err := s.Put(p); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []struct {
			kind          watch.EventType
			name, version string
		}{{watch.Added, "d", "5"}, {watch.Modified, "a", "6"}} {
			e := <-w.ResultChan()
			if p, ok := e.Object.(*corev1.Pod); !ok || e.Type != want.kind || p.Name != want.name || p.ResourceVersion != want.version {
				t.Errorf("%s: got %v of %v, want %v", contentType, e.Type, e.Object, want)
			}
		}
		w.Stop()
	}
}

func TestWatchFromBeforeTheLoadHasExpired(t *testing.T) {
	_, cfg := start(t, "application/json")
	_, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods("ns").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("watch: %v, want that the version has expired", err)
	}
}

// An informer syncs from the initial events of one watch and follows it.
func TestInformer(t *testing.T) {
	for _, contentType := range contentTypes {
		s, cfg := start(t, contentType)
		factory := informers.NewSharedInformerFactoryWithOptions(kubernetes.NewForConfigOrDie(cfg), 0, informers.WithNamespace("ns"))
		informer := factory.Core().V1().Pods().Informer()
		seen := make(chan string, 10)
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { seen <- o.(*corev1.Pod).Name }}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		factory.StartWithContext(ctx)
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			t.Fatal("informer has not synced")
		}
		if err := s.Put(pod("d", "x")); err != nil {
			t.Fatal(err)
		}
		got := []string{<-seen, <-seen, <-seen, <-seen}
		slices.Sort(got)
		if diff := cmp.Diff([]string{"a", "b", "c", "d"}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", contentType, diff)
		}
		cancel()
		factory.Shutdown()
		if refused := s.Refused(); len(refused) > 0 {
			t.Errorf("%s: refused %v", contentType, refused)
		}
	}
}

func TestWrites(t *testing.T) {
	for _, contentType := range contentTypes {
		_, cfg := start(t, contentType)
		leases := kubernetes.NewForConfigOrDie(cfg).CoordinationV1().Leases("ns")
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}}
		made, err := leases.Create(t.Context(), lease, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			t.Errorf("second create: %v, want that it exists", err)
		}
		holder := "h"
		made.Spec.HolderIdentity = &holder
		if _, err := leases.Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := leases.Update(t.Context(), made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("update of an old version: %v, want a conflict", err)
		}
		if got, err := leases.Get(t.Context(), "l", metav1.GetOptions{}); err != nil || *got.Spec.HolderIdentity != "h" {
			t.Errorf("get: %v, %v", got, err)
		}
		if _, err := leases.Get(t.Context(), "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("get of none: %v, want not found", err)
		}
	}
}

func TestComputedLists(t *testing.T) {
	for _, contentType := range contentTypes {
		s, cfg := start(t, contentType)
		err := s.Compute(&metricsv1beta1.PodMetrics{}, func(namespace string) []apistub.Object {
			return []apistub.Object{&metricsv1beta1.PodMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}}
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := metricsclient.NewForConfigOrDie(cfg).PodMetricses("ns").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(got.Items) != 1 || got.Items[0].Name != "a" {
			t.Errorf("%s: %v, %v", contentType, got, err)
		}
	}
}

func TestWhatIsNotKnownIsRefused(t *testing.T) {
	s, cfg := start(t, "application/json")
	kube := kubernetes.NewForConfigOrDie(cfg)
	_, patchErr := kube.CoreV1().Pods("ns").Patch(t.Context(), "a", types.JSONPatchType, []byte("[]"), metav1.PatchOptions{})
	_, nodesErr := kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsMethodNotSupported(patchErr) || !apierrors.IsMethodNotSupported(nodesErr) {
		t.Errorf("patch: %v, nodes: %v, want both refused", patchErr, nodesErr)
	}
	want := []string{http.MethodPatch + " /api/v1/namespaces/ns/pods/a", http.MethodGet + " /api/v1/nodes"}
	if diff := cmp.Diff(want, s.Refused()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
