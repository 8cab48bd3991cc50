//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	skipperpb "skipper/proto"
)

const (
	imageFunctions = 20
	// mostReplaced is the default of --max-concurrent-stale-replacements.
	mostReplaced = 10
	// slowAssign makes a replacement take so long that others wait for its place, however slowly pods start.
	slowAssign = "10s"
)

// An image is changed, as by kubectl set image, under requests to twenty functions: all get instances of the new one,
// never more than ten at once, and no request fails. Red: the limit is not kept or counts too late, an instance is
// drained before its replacement serves, or one is forgotten.
func imageStory(t *testing.T, s *stage) {
	p := s.newPool(t, mostReplaced)
	watch := p.watchReplacements(t)
	functions := make([]*skipperpb.Function, imageFunctions)
	var crowds []*crowd
	for i := range functions {
		functions[i] = p.function(fmt.Sprint(i))
		functions[i].Scale.MaxInstances = 1
		p.waitServed(t, functions[i]) // a slow node may take longer than a request is held
		crowds = append(crowds, startCrowd(t, p, functions[i], 1, "/slow?for=500ms"))
	}
	before := map[types.UID]bool{}
	for _, f := range functions {
		p.waitServing(t, f, 1)
		before[p.serving(f)[0].pod.UID] = true
	}
	image := s.otherImage(t)
	begun := time.Now()
	p.setImage(t, image)
	for _, f := range functions {
		p.waitReplacedBy(t, f, image)
	}
	took := time.Since(begun)
	for uid := range before {
		p.waitGone(t, uid)
	}
	answered := 0
	for _, c := range crowds {
		answered += c.stop(t)
	}
	most := watch.most()
	t.Logf("%d functions have the image %s after %s, at most %d replaced at once, %d requests served", len(functions), image, took.Round(time.Second), most, answered)
	if most > mostReplaced || most < mostReplaced/2 {
		t.Errorf("at most %d functions were replaced at once, want up to %d, and more than a few", most, mostReplaced)
	}
	p.wantClaims(t, "", 2*len(functions))
}

// waitReplacedBy waits until the one instance of a function that is not draining has the image.
func (p *pool) waitReplacedBy(t *testing.T, f *skipperpb.Function, image string) {
	t.Helper()
	eventuallyFor(t, 2*patience, "the new image at "+f.GetTenant(), func() (bool, string) {
		now := p.serving(f)
		return len(now) == 1 && now[0].pod.Spec.Containers[0].Image == image, p.pods.String()
	})
}

// setImage is kubectl set image; the new image takes its time with assignments.
func (p *pool) setImage(t *testing.T, image string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []map[string]any{{
			"name": modelPool, "image": image, "env": []map[string]string{{"name": "SKIPPER_ECHO_ASSIGN_DELAY", "value": slowAssign}},
		}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.kube.AppsV1().Deployments(p.functions).Patch(t.Context(), p.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// otherImage gives the image of the pools another tag on the node.
func (s *stage) otherImage(t *testing.T) string {
	t.Helper()
	model, err := s.kube.AppsV1().Deployments(s.functions).Get(t.Context(), modelPool, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	image := model.Spec.Template.Spec.Containers[0].Image
	other := image[:max(strings.LastIndex(image, ":"), 0)] + ":e2e-" + strings.TrimPrefix(s.functions, suiteLabel+"-stage-")
	ctr(t, "images", "tag", image, other)
	t.Cleanup(func() { ctr(t, "images", "rm", other) })
	return other
}

// ctr asks the local node's container runtime.
func ctr(t *testing.T, args ...string) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(cache, "skipper")
	program := filepath.Join(base, "bin", "ctr")
	if _, err := os.Stat(program); err != nil {
		t.Skipf("another tag needs the container runtime of the local node: %v", err)
	}
	args = append([]string{"-a", filepath.Join(base, "run", "containerd.sock"), "-n", "k8s.io"}, args...)
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("ctr %v: %v: %s", args, err, out)
	}
}

// replacements follows, event by event, how many functions of a pool have more than one instance that is not draining:
// the stale one and its replacement. Safe for concurrent use.
type replacements struct {
	mu     sync.Mutex
	active map[string]map[types.UID]bool // by tenant
	peak   int
}

func (p *pool) watchReplacements(t *testing.T) *replacements {
	t.Helper()
	r := &replacements{active: map[string]map[types.UID]bool{}}
	factory := informers.NewSharedInformerFactoryWithOptions(p.kube, 0, informers.WithNamespace(p.functions),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = poolLabel + "=" + p.name }))
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    r.saw,
		UpdateFunc: func(_, o any) { r.saw(o) },
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop); factory.Shutdown() })
	factory.Start(stop)
	factory.WaitForCacheSync(t.Context().Done())
	return r
}

func (r *replacements) saw(o any) {
	pod, ok := o.(*corev1.Pod)
	tenant := ""
	if ok {
		tenant = pod.Labels[tenantLabel]
	}
	if tenant == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active[tenant] == nil {
		r.active[tenant] = map[types.UID]bool{}
	}
	if pod.Annotations[drainingAtNote] == "" && pod.DeletionTimestamp == nil {
		r.active[tenant][pod.UID] = true
	} else {
		delete(r.active[tenant], pod.UID)
	}
	n := 0
	for _, pods := range r.active {
		if len(pods) > 1 {
			n++
		}
	}
	r.peak = max(r.peak, n)
}

func (r *replacements) most() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peak
}
