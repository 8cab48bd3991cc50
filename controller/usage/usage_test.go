package usage

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// api is a metrics API in miniature.
type api struct {
	metricsclient.PodMetricsInterface
	mu    sync.Mutex
	items []metricsv1beta1.PodMetrics
	err   error
	lists int
}

func (a *api) PodMetricses(string) metricsclient.PodMetricsInterface { return a }

func (a *api) List(context.Context, metav1.ListOptions) (*metricsv1beta1.PodMetricsList, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lists++
	return &metricsv1beta1.PodMetricsList{Items: a.items}, a.err
}

func (a *api) fails(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

func (a *api) listed() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lists
}

func pod(name string, containers ...[2]string) metricsv1beta1.PodMetrics {
	p := metricsv1beta1.PodMetrics{ObjectMeta: metav1.ObjectMeta{Name: name}, Window: metav1.Duration{Duration: 15 * time.Second}}
	for _, c := range containers {
		p.Containers = append(p.Containers, metricsv1beta1.ContainerMetrics{Usage: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(c[0]), corev1.ResourceMemory: resource.MustParse(c[1]),
		}})
	}
	return p
}

const interval = 15 * time.Second

// start runs a Reader over a for two namespaces.
func start(t *testing.T, a metricsclient.PodMetricsesGetter, log *zap.Logger) *Reader {
	t.Helper()
	r := New(Config{Client: a, Namespaces: []string{"one", "two"}, Interval: interval, Registerer: prometheus.NewRegistry(), Log: log})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return r
}

func advance(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
	synctest.Wait()
}

func TestContainersAreSummedUpAndRoundedUp(t *testing.T) {
	tests := []struct {
		name string
		pod  metricsv1beta1.PodMetrics
		want [2]uint32
	}{
		{"two containers", pod("a", [2]string{"250m", "64Mi"}, [2]string{"1", "1Gi"}), [2]uint32{1250, 1088}},
		{"nanocores and bytes", pod("a", [2]string{"1n", "1"}), [2]uint32{1, 1}},
		{"no container", pod("a"), [2]uint32{}},
		{"negative", pod("a", [2]string{"-1", "-1Gi"}), [2]uint32{}},
		{"absurd", pod("a", [2]string{"9E", "9E"}), [2]uint32{1<<32 - 1, 1<<32 - 1}},
		{"container without numbers", metricsv1beta1.PodMetrics{Containers: make([]metricsv1beta1.ContainerMetrics, 2)}, [2]uint32{}},
	}
	for _, tt := range tests {
		u := sum(&tt.pod)
		if got := [2]uint32{u.CPUMilli, u.MemoryMiB}; got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestOneListForEachNamespaceAndInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{items: []metricsv1beta1.PodMetrics{pod("a", [2]string{"100m", "10Mi"})}}
		r := start(t, a, zap.NewNop())
		synctest.Wait()
		for range 1000 {
			r.Of("one", "a", time.Now())
		}
		if n := a.listed(); n != 2 {
			t.Errorf("%d lists at the start, want 2", n)
		}
		advance(10 * interval)
		if n := a.listed(); n < 18 || n > 24 {
			t.Errorf("%d lists in 10 intervals, want about 20", n)
		}
		want := Usage{CPUMilli: 100, MemoryMiB: 10, Window: 15 * time.Second, At: time.Time{}.UTC()}
		if got, ok := r.Of("one", "a", time.Now()); !ok || got != want {
			t.Errorf("Of = %+v, %t, want %+v", got, ok, want)
		}
		if _, ok := r.Of("one", "b", time.Now()); ok {
			t.Error("a pod that was not listed is known")
		}
		if _, ok := r.Of("three", "a", time.Now()); ok || r.Metered("three") {
			t.Error("a namespace that is not read is known")
		}
	})
}

func TestOutageIsSaidOnceAndEndsTheNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.WarnLevel)
		a := &api{items: []metricsv1beta1.PodMetrics{pod("a", [2]string{"100m", "10Mi"})}}
		r := start(t, a, zap.New(core))
		advance(time.Second)
		if r.available() != 1 || r.known() != 2 {
			t.Errorf("available %v, %v instances", r.available(), r.known())
		}
		a.fails(apierrors.NewServiceUnavailable("metrics-server is starting"))
		advance(2 * interval)
		if _, ok := r.Of("one", "a", time.Now()); !ok {
			t.Error("one list that failed loses the numbers")
		}
		advance(10 * interval)
		if _, ok := r.Of("one", "a", time.Now()); ok || !r.Metered("one") || r.available() != 0 {
			t.Error("numbers of long ago are still in use")
		}
		if n := logs.Len(); n != 2 {
			t.Errorf("%d warnings, want one for each namespace", n)
		}
		a.fails(nil)
		advance(2 * interval)
		if _, ok := r.Of("one", "a", time.Now()); !ok || r.available() != 1 {
			t.Error("no recovery")
		}
	})
}

func TestNoMetricsAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.WarnLevel)
		a := &api{err: apierrors.NewNotFound(schema.GroupResource{Group: "metrics.k8s.io", Resource: "pods"}, "")}
		r := start(t, a, zap.New(core))
		advance(20 * interval)
		if r.Metered("one") || r.available() != 0 || r.age() != 0 {
			t.Errorf("metered %t, available %v, age %v", r.Metered("one"), r.available(), r.age())
		}
		if n := logs.FilterMessageSnippet("CPU and memory do not change").Len(); n != 2 {
			t.Errorf("%d warnings, want one for each namespace", n)
		}
		if n := testutil.ToFloat64(r.metrics.lists.WithLabelValues("failed")); n < 30 {
			t.Errorf("%v lists, want it to go on asking", n)
		}
	})
}

func TestWithoutAClientNothingIsKnown(t *testing.T) {
	r := New(Config{Namespaces: []string{"one"}, Interval: interval, Registerer: prometheus.NewRegistry(), Log: zap.NewNop()})
	if err := r.Run(t.Context()); err != nil || r.Metered("one") {
		t.Errorf("Run = %v, metered %t", err, r.Metered("one"))
	}
}

// TestReadsWhatTheAPIServes goes through the real client.
func TestReadsWhatTheAPIServes(t *testing.T) {
	const answer = `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","items":[{"metadata":{"name":"a","namespace":"one"},
		"timestamp":"2026-01-02T03:04:05Z","window":"17.5s","containers":[{"name":"app","usage":{"cpu":"123456789n","memory":"2097153"}}]}]}`
	asked := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path + "?" + r.URL.Query().Get("labelSelector")
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer)) // a reader that left fails the test anyway
	}))
	defer s.Close()
	client, err := metricsclient.NewForConfig(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	r := New(Config{Client: client, Namespaces: []string{"one"}, Interval: interval, Registerer: prometheus.NewRegistry(), Log: zap.NewNop()})
	r.read(t.Context(), "one")
	if got, want := <-asked, "/apis/metrics.k8s.io/v1beta1/namespaces/one/pods?skipper/deployment,skipper/tenant"; got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
	want := Usage{CPUMilli: 124, MemoryMiB: 3, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Window: 17500 * time.Millisecond}
	got, _ := r.Of("one", "a", time.Now())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	client.RESTClient().(*rest.RESTClient).Client.CloseIdleConnections()
}
