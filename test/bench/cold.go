package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"skipper/proto/reason"
	"skipper/test/bench/internal/report"
)

const (
	coldNamespace = "functions"
	coldPool      = "echo"
	// coldReady is how many pods must wait in the pool before a sample: fewer,
	// and the sample would measure the kubelet instead of Skipper.
	coldReady = 2
)

// cold measures cold starts one by one on the real cluster, each beside the two
// things that it cannot do without: one patch of a pod and one POST to it.
type cold struct {
	kube    kubernetes.Interface
	gateway string
	client  *http.Client
	run     string // makes tenants of this run unlike those of others

	start, patch, post []time.Duration
	failed             []string // status and reason of each
	used               []usedPod
}

// usedPod waits to be given back.
type usedPod struct {
	name  string
	since time.Time
}

// idleFirst is how long a used pod stays: until extproc no longer counts its
// function as used, or the controller would replace the pod.
const idleFirst = 30 * time.Second

// measureCold takes n samples and returns the table.
func measureCold(ctx context.Context, gateway string, n int) (string, error) {
	c, err := newCold(gateway)
	if err != nil {
		return "", err
	}
	for i := range n {
		if err := c.sample(ctx, i); err != nil {
			return "", fmt.Errorf("take sample %d: %w", i, err)
		}
	}
	return c.table(), c.giveBack(ctx, 0)
}

func newCold(gateway string) (*cold, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", clientcmd.NewDefaultClientConfigLoadingRules().GetDefaultFilename())
	if err != nil {
		return nil, fmt.Errorf("read KUBECONFIG: %w", err)
	}
	cfg.QPS = -1 // the rival must not be held up by its own client
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make Kubernetes client: %w", err)
	}
	return &cold{kube: kube, gateway: gateway, client: &http.Client{Transport: &http.Transport{}}, run: fmt.Sprintf("%x", time.Now().UnixNano())}, nil
}

// sample is one cold start of a new tenant, one patch, one POST, and the pod
// given back, so that the pool refills while the next sample runs.
func (c *cold) sample(ctx context.Context, i int) error {
	if err := c.waitForPool(ctx); err != nil {
		return err
	}
	tenant := fmt.Sprintf("cold-%s-%d", c.run, i)
	took, failure, err := c.request(ctx, tenant)
	if err != nil {
		return err
	}
	if failure != "" {
		c.failed = append(c.failed, failure)
		return nil
	}
	c.start = append(c.start, took)
	pod, err := c.claimed(ctx, tenant)
	if err != nil {
		return err
	}
	c.used = append(c.used, usedPod{pod.Name, time.Now()})
	return errors.Join(c.measurePatch(ctx, pod, i), c.measurePost(ctx, pod), c.giveBack(ctx, idleFirst))
}

func (c *cold) waitForPool(ctx context.Context) error {
	opts := metav1.ListOptions{LabelSelector: "skipper/deployment=" + coldPool + ",!skipper/tenant", ResourceVersion: "0"}
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		pods, err := c.kube.CoreV1().Pods(coldNamespace).List(ctx, opts)
		if err != nil {
			return false, err
		}
		ready := 0
		for i := range pods.Items {
			if isReady(&pods.Items[i]) {
				ready++
			}
		}
		return ready >= coldReady, nil
	})
}

func isReady(p *corev1.Pod) bool {
	for _, cond := range p.Status.Conditions {
		if cond.Type == corev1.PodReady {
			return cond.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	return false
}

// request is a cold start until the first byte of the answer; failure says what
// came where it was not the function's 200.
func (c *cold) request(ctx context.Context, tenant string) (took time.Duration, failure string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.gateway+"/cold", nil)
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("X-Skipper-Function", fmt.Sprintf(`{"namespace":%q,"deployment":%q,"tenant":%q,"scale":{"max_instances":1}}`, coldNamespace, coldPool, tenant))
	return c.timed(r)
}

// timed sends a request on whatever connection there is and measures until the
// response's headers are there.
func (c *cold) timed(r *http.Request) (took time.Duration, failure string, err error) {
	begin := time.Now()
	res, err := c.client.Do(r)
	took = time.Since(begin)
	if err != nil {
		return 0, "", err
	}
	if res.StatusCode != http.StatusOK {
		failure = fmt.Sprintf("%d %s", res.StatusCode, res.Header.Get(reason.Header))
	}
	return took, failure, res.Body.Close()
}

func (c *cold) claimed(ctx context.Context, tenant string) (*corev1.Pod, error) {
	pods, err := c.kube.CoreV1().Pods(coldNamespace).List(ctx, metav1.ListOptions{LabelSelector: "skipper/tenant=" + tenant})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) != 1 {
		return nil, fmt.Errorf("tenant %s has %d pods, want one", tenant, len(pods.Items))
	}
	return &pods.Items[0], nil
}

func (c *cold) measurePatch(ctx context.Context, pod *corev1.Pod, i int) error {
	patch, err := json.Marshal([]map[string]string{{"op": "add", "path": "/metadata/annotations/bench", "value": fmt.Sprint(i)}})
	if err != nil {
		return err
	}
	begin := time.Now()
	_, err = c.kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	c.patch = append(c.patch, time.Since(begin))
	return err
}

// measurePost asks the pod for an assignment without a token, which it refuses
// at once: the same connection set-up and round trip as a real one. The
// connection is new, as that of an assignment is.
func (c *cold) measurePost(ctx context.Context, pod *corev1.Pod) error {
	url := fmt.Sprintf("http://%s:%d/__skipper/assign", pod.Status.PodIP, pod.Spec.Containers[0].Ports[0].ContainerPort)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	r.Close = true
	took, _, err := c.timed(r)
	c.post = append(c.post, took)
	return err
}

// giveBack deletes the pods that were used at least that long ago.
func (c *cold) giveBack(ctx context.Context, since time.Duration) error {
	for len(c.used) > 0 && time.Since(c.used[0].since) >= since {
		err := c.kube.CoreV1().Pods(coldNamespace).Delete(ctx, c.used[0].name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		c.used = c.used[1:]
	}
	return nil
}

func (c *cold) table() string {
	t := report.Table{Header: []string{"what", "samples", "p50 ms", "p95 ms", "max ms"}}
	add := func(name string, s []time.Duration) {
		t.Add(name, fmt.Sprint(len(s)), report.Millis(report.Percentile(s, 0.5)), report.Millis(report.Percentile(s, 0.95)), report.Millis(report.Percentile(s, 1)))
	}
	add("cold start, client to first byte", c.start)
	add("rival: one JSON patch of a pod", c.patch)
	add("rival: one empty POST to the pod", c.post)
	sum := report.Percentile(c.patch, 0.5) + report.Percentile(c.post, 0.5)
	return t.Markdown() + fmt.Sprintf("\nFailed: %d %v. Cold start p50 is %.2f times, p95 %.2f times the sum of both rivals' p50 (%s ms); the aim is 3 and 6.\n",
		len(c.failed), c.failed, ratio(report.Percentile(c.start, 0.5), sum), ratio(report.Percentile(c.start, 0.95), sum), report.Millis(sum))
}

func ratio(a, b time.Duration) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
