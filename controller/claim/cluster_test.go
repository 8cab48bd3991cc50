package claim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"skipper/controller/pool"
)

// cluster returns a client of a real API server, with a namespace that lives as
// long as the test.
func cluster(t *testing.T) (kubernetes.Interface, string) {
	t.Helper()
	path := os.Getenv("SKIPPER_TEST_KUBECONFIG")
	if path == "" {
		t.Skip("SKIPPER_TEST_KUBECONFIG is not set: it names the kubeconfig of a cluster on which to try claims")
	}
	base, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	connections, err := rest.HTTPClientFor(ClientConfig(base))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(connections.Transport) })
	client, err := kubernetes.NewForConfigAndClient(ClientConfig(base), connections)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "skipper-claim-test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		if err := client.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete namespace %s: %v", ns.Name, err)
		}
	})
	return client, ns.Name
}

// hollowPods has a ReplicaSet make pods on a node that does not exist, so that
// no kubelet runs them, and says in their status that they are ready.
func hollowPods(t *testing.T, client kubernetes.Interface, ns, name string, n int32, annotations map[string]string) []pool.Pod {
	t.Helper()
	p := readyPod(0)
	p.Spec.NodeName = "hollow-node-of-no-kubelet"
	p.Spec.Containers[0].Image = "hollow"
	labels := map[string]string{pool.LabelDeployment: "echo", "set": name}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.ReplicaSetSpec{
		Replicas: &n,
		Selector: &metav1.LabelSelector{
			MatchLabels:      labels,
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: pool.LabelTenant, Operator: metav1.LabelSelectorOpDoesNotExist}},
		},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}, Spec: p.Spec},
	}}
	if _, err := client.AppsV1().ReplicaSets(ns).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	events, err := client.CoreV1().Pods(ns).Watch(t.Context(), metav1.ListOptions{LabelSelector: "set=" + name})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	ready := map[string]pool.Pod{}
	for e := range events.ResultChan() {
		if made, ok := e.Object.(*corev1.Pod); ok && e.Type == watch.Added {
			p.Status.PodIP = fmt.Sprintf("10.255.0.%d", len(ready)+1)
			ready[made.Name] = saysReady(t, client, made, p.Status)
		}
		if len(ready) == int(n) {
			break
		}
	}
	return slices.Collect(maps.Values(ready))
}

func saysReady(t *testing.T, client kubernetes.Interface, p *corev1.Pod, status corev1.PodStatus) pool.Pod {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		t.Fatal(err)
	}
	p, err = client.CoreV1().Pods(p.Namespace).Patch(t.Context(), p.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	return pool.FromPod(p, pool.NewParser(1))
}

// TestClusterAnswersAsJudgeExpects claims on a real API server, with and
// without an annotations map, twice, and after the pod was replaced.
func TestClusterAnswersAsJudgeExpects(t *testing.T) {
	client, ns := cluster(t)
	for i, annotations := range []map[string]string{nil, {"a/b": "c"}} {
		pods := hollowPods(t, client, ns, fmt.Sprint("set", i), 2, annotations)
		p := pods[0]
		if p.HasAnnotations != (annotations != nil) {
			t.Errorf("pod %d: HasAnnotations %t", i, p.HasAnnotations)
		}
		f := testFunction("t1")
		f.Namespace = ns
		try := func(p pool.Pod) Verdict {
			reply, err := client.CoreV1().Pods(ns).Patch(t.Context(), p.Name, types.JSONPatchType, Patch(p, f, time.Now()), metav1.PatchOptions{})
			return Judge(reply, err)
		}
		other := p
		other.UID = "00000000-0000-4000-8000-999999999999"
		if v := try(other); v.Outcome != LostRace {
			t.Errorf("pod %d of another UID: %s (%s)", i, v.Outcome, v.Reason)
		}
		if v := try(p); v.Outcome != Won {
			t.Errorf("pod %d: %s (%s)", i, v.Outcome, v.Reason)
		}
		if v := try(p); v.Outcome != LostRace {
			t.Errorf("pod %d again: %s (%s)", i, v.Outcome, v.Reason)
		}
		gone := p
		gone.Name = "no-such-pod"
		if v := try(gone); v.Outcome != Gone {
			t.Errorf("no pod: %s (%s)", v.Outcome, v.Reason)
		}
		f.Tenant = "no label value!"
		if v := try(pods[1]); v.Outcome != Refused {
			t.Errorf("invalid object: %s (%s)", v.Outcome, v.Reason)
		}
	}
}

// TestClusterClaimsNoPodTwice lets two Claimers without any informer race for
// the same pods.
func TestClusterClaimsNoPodTwice(t *testing.T) {
	client, ns := cluster(t)
	const pods = 20
	views := []*pool.View{pool.NewView(), pool.NewView()}
	for _, p := range hollowPods(t, client, ns, "set", pods, nil) {
		views[0].Apply(p)
		views[1].Apply(p)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	owners := make(chan string, pods) // one for each call
	var running sync.WaitGroup
	for i, v := range views {
		c := New(Config{Pods: client.CoreV1(), View: v, Functions: pool.NewParser(100), Log: zap.NewNop(), Metrics: NewMetrics(prometheus.NewRegistry())})
		running.Go(func() { _ = c.Run(ctx) })
		for j := range pods / 2 {
			f := testFunction(fmt.Sprint("t", i, "-", j))
			f.Namespace = ns
			running.Go(func() {
				p, err := c.Claim(ctx, f)
				if err != nil {
					t.Error(err)
				}
				owners <- p.UID
			})
		}
	}
	seen := map[string]bool{}
	for range pods {
		uid := <-owners
		if seen[uid] {
			t.Errorf("pod %s was claimed twice", uid)
		}
		seen[uid] = true
	}
	cancel()
	running.Wait()
}
