package main

import (
	"context"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"

	"skipper/controller/config"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
)

// burning is a metrics API by which the first pod uses 0.9 cores.
type burning struct {
	metricsclient.PodMetricsInterface
}

func (b burning) PodMetricses(string) metricsclient.PodMetricsInterface { return b }

func (burning) List(context.Context, metav1.ListOptions) (*metricsv1beta1.PodMetricsList, error) {
	use := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	list := &metricsv1beta1.PodMetricsList{}
	for _, name := range []string{"echo-0", "echo-1", "echo-2"} {
		list.Items = append(list.Items, metricsv1beta1.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Containers: []metricsv1beta1.ContainerMetrics{{Usage: use}},
		})
	}
	return list, nil
}

func (w *world) beat(f *skipperpb.Function) {
	w.t.Helper()
	if _, err := w.client.Heartbeat(w.t.Context(), &skipperpb.HeartbeatRequest{
		RouterIp: "10.9.0.1", Heartbeats: []*skipperpb.Heartbeat{{Function: f, InFlightRequests: 1}},
	}); err != nil {
		w.t.Fatal(err)
	}
}

func TestBurningFunctionGrows(t *testing.T) {
	w := newWorld(t)
	w.usage = burning{}
	w.start(3, func(c *config.Config) { c.ScaleInterval, c.InitialReadinessDelay = 200*time.Millisecond, 0 })
	f := function("t")
	f.Scale.TargetCpuUsageMilli = 150
	if _, err := w.get(f); err != nil {
		t.Fatal(err)
	}
	w.beat(f)
	w.until("3 instances", func(pods []corev1.Pod) bool { return len(tenantPods(pods, "t")) == 3 })
	state, err := w.client.GetClusterState(t.Context(), &skipperpb.GetClusterStateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range state.GetClusterState().GetSupervisors()[0].GetInstances() {
		if i.GetCpuUsageMilli() != 300 || i.GetMemoryUsageMib() != 64 {
			t.Errorf("%s uses %dm and %dMiB, want 300m and 64MiB", i.GetName(), i.GetCpuUsageMilli(), i.GetMemoryUsageMib())
		}
	}
}

// rollOut is what a Deployment does when its image changes: another ReplicaSet,
// with a pod, and none for the first one.
func (w *world) rollOut() {
	w.t.Helper()
	none, sets := int32(0), w.api.AppsV1().ReplicaSets(namespace)
	next := replicaSet()
	next.Name, next.UID = "echo-2", "rs-2"
	if _, err := sets.Create(w.t.Context(), next, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	last := replicaSet()
	last.Spec.Replicas = &none
	if _, err := sets.Update(w.t.Context(), last, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	s := httptest.NewServer(w)
	w.t.Cleanup(s.Close)
	p := idlePod(7, s.Listener.Addr().(*net.TCPAddr).Port)
	p.OwnerReferences[0].Name, p.OwnerReferences[0].UID = next.Name, next.UID
	if _, err := w.api.CoreV1().Pods(namespace).Create(w.t.Context(), p, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func TestRolloutReplacesInstancesWithoutAGap(t *testing.T) {
	w := startWorld(t, 1, func(c *config.Config) { c.ScaleInterval = 200 * time.Millisecond })
	f := function("t")
	f.Scale.MaxInstances = 1
	if _, err := w.get(f); err != nil {
		t.Fatal(err)
	}
	w.beat(f)
	w.rollOut()
	w.until("replacement, then drain", func(pods []corev1.Pod) bool {
		old, replaced := true, false
		for _, p := range tenantPods(pods, "t") {
			if p.Name == "echo-0" {
				old = p.Annotations[pool.AnnotationDrainingAt] == ""
			} else {
				replaced = strings.Contains(p.Annotations[pool.AnnotationFunction], `"tenant":"t"`)
			}
		}
		if !old && !replaced {
			t.Fatal("the instance drains before its replacement is there")
		}
		return !old && replaced
	})
	if i, err := w.get(f); err != nil || i.GetName() != "echo-7" || i.GetReplicaSet() != "echo-2" {
		t.Errorf("instance %v, %v, want the replacement", i, err)
	}
}
