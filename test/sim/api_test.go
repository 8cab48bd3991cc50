package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"skipper/controller/pool"
)

// api is the API server: pods by namespace and name, as values that are never
// changed, and one count of versions.
type api struct {
	version uint64
	pods    map[string]*corev1.Pod
	downTil time.Time // until when calls fail
	slowTil time.Time // until when they take seconds
}

func nameOf(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// store writes a pod and has all informers show it in their time.
func (w *world) storeLocked(p *corev1.Pod) {
	w.api.version++
	p.ResourceVersion = strconv.FormatUint(w.api.version, 10)
	w.api.pods[nameOf(p)] = p
	w.showLocked(change{pod: p})
}

func (w *world) eraseLocked(p *corev1.Pod) {
	if now := w.api.pods[nameOf(p)]; now == nil || now.UID != p.UID {
		return
	}
	w.api.version++
	p = p.DeepCopy()
	p.ResourceVersion = strconv.FormatUint(w.api.version, 10)
	delete(w.api.pods, nameOf(p))
	delete(w.bodies, string(p.UID))
	w.showLocked(change{pod: p, removed: true})
}

// editLocked changes the pod with the UID, if it is there.
func (w *world) editLocked(uid string, edit func(*corev1.Pod)) {
	b := w.bodies[uid]
	if b == nil {
		return
	}
	p := w.api.pods[b.name]
	if p == nil || string(p.UID) != uid {
		return
	}
	p = p.DeepCopy()
	edit(p)
	w.storeLocked(p)
}

// podOfLocked is the pod with the UID; nil where there is none.
func (w *world) podOfLocked(uid string) *corev1.Pod {
	if b := w.bodies[uid]; b != nil {
		if p := w.api.pods[b.name]; p != nil && string(p.UID) == uid {
			return p
		}
	}
	return nil
}

// podsLocked are all pods in the order of their names.
func (w *world) podsLocked() []*corev1.Pod {
	out := make([]*corev1.Pod, 0, len(w.api.pods))
	for _, name := range slices.Sorted(maps.Keys(w.api.pods)) {
		out = append(out, w.api.pods[name])
	}
	return out
}

// client is a replica's way to the API server.
type client struct{ r *replica }

func (c client) Pods(namespace string) corev1client.PodInterface {
	return podClient{r: c.r, namespace: namespace}
}

type podClient struct {
	corev1client.PodInterface
	r         *replica
	namespace string
}

var (
	errDead = errors.New("the process has ended")
	errDown = errors.New("the API server does not answer")
)

// fate of a call.
type fate int

const (
	arrives fate = iota
	lostThere
	lostBack
)

// travel takes the time of a call.
func (c podClient) travel(ctx context.Context, what, name string) (fate, error) {
	w := c.r.w
	w.mu.Lock()
	luck := w.luckLocked(what, name)
	most, f := 40*time.Millisecond, arrives
	if time.Now().Before(w.api.slowTil) {
		most = 2 * time.Second
	}
	if time.Now().Before(w.api.downTil) {
		f = []fate{arrives, lostThere, lostThere, lostBack}[luck>>32%4]
	}
	w.mu.Unlock()
	if !c.r.rest(ctx, between(luck, time.Millisecond, most)) {
		return f, errDead
	}
	return f, nil
}

// rest waits; false where the context or the replica ended first.
func (r *replica) rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-r.life.Done():
	}
	return false
}

func (c podClient) Patch(ctx context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Pod, error) {
	f, err := c.travel(ctx, "patch", name)
	if err != nil {
		return nil, err
	}
	if f == lostThere {
		return nil, errDown
	}
	w := c.r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.r.life.Err() != nil {
		return nil, errDead
	}
	p, ok := w.api.pods[c.namespace+"/"+name]
	if !ok {
		return nil, notFound(name)
	}
	next, err := c.r.patched(p, data)
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	w.judgePatchLocked(c.r, p, next)
	w.storeLocked(next)
	if f == lostBack {
		return nil, errDown
	}
	return c.r.local(next), nil
}

func notFound(name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
}

func (c podClient) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	f, err := c.travel(ctx, "delete", name)
	if err != nil {
		return err
	}
	if f == lostThere {
		return errDown
	}
	w := c.r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.r.life.Err() != nil {
		return errDead
	}
	p, ok := w.api.pods[c.namespace+"/"+name]
	if !ok {
		return notFound(name)
	}
	if o.Preconditions != nil && *o.Preconditions.UID != p.UID {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, errors.New("uid differs"))
	}
	w.judgeDeleteLocked(c.r, p)
	w.deleteLocked(p)
	if f == lostBack {
		return errDown
	}
	return nil
}

func (c podClient) List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	name, _ := strings.CutPrefix(o.FieldSelector, "metadata.name=")
	f, err := c.travel(ctx, "list", name)
	if err != nil {
		return nil, err
	}
	if f != arrives {
		return nil, errDown
	}
	w := c.r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	out := &corev1.PodList{}
	if p, ok := w.api.pods[c.namespace+"/"+name]; ok {
		out.Items = append(out.Items, *c.r.local(p))
	}
	return out, nil
}

// operation is one step of a JSON patch.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value"`
}

// patched is the pod with the patch, or why a test failed. It knows the paths
// that controllers write.
func (r *replica) patched(p *corev1.Pod, data []byte) (*corev1.Pod, error) {
	var ops []operation
	if err := json.Unmarshal(data, &ops); err != nil {
		return nil, err
	}
	next := p.DeepCopy()
	for _, o := range ops {
		switch {
		case o.Op == "test" && r.w.broken.noTests:
		case o.Op == "test" && !holds(next, o):
			return nil, fmt.Errorf("testing path %s: test failed", o.Path)
		case o.Op == "add":
			if err := r.add(next, o); err != nil {
				return nil, err
			}
		}
	}
	return next, nil
}

// value of the path as JSON; null where there is none.
func value(p *corev1.Pod, path string) any {
	steps := strings.Split(strings.TrimPrefix(path, "/metadata/"), "/")
	switch {
	case path == "/metadata/uid":
		return p.UID
	case len(steps) == 2 && steps[0] == "labels":
		return present(p.Labels, steps[1])
	case len(steps) == 2 && steps[0] == "annotations":
		return present(p.Annotations, steps[1])
	case len(steps) == 3 && steps[0] == "ownerReferences":
		return ownerValue(p, steps[1], steps[2])
	}
	return nil
}

func present(m map[string]string, key string) any {
	if v, ok := m[strings.NewReplacer("~1", "/", "~0", "~").Replace(key)]; ok {
		return v
	}
	return nil
}

func ownerValue(p *corev1.Pod, index, field string) any {
	i, err := strconv.Atoi(index)
	if err != nil || i >= len(p.OwnerReferences) {
		return nil
	}
	o := p.OwnerReferences[i]
	return map[string]any{"controller": o.Controller, "kind": o.Kind, "name": o.Name}[field]
}

func holds(p *corev1.Pod, o operation) bool {
	have, err := json.Marshal(value(p, o.Path))
	return err == nil && bytes.Equal(have, o.Value)
}

func (r *replica) add(p *corev1.Pod, o operation) error {
	var text string
	if err := json.Unmarshal(o.Value, &text); err != nil {
		return err
	}
	key := func(prefix string) (string, bool) {
		k, ok := strings.CutPrefix(o.Path, prefix)
		return strings.NewReplacer("~1", "/", "~0", "~").Replace(k), ok
	}
	if k, ok := key("/metadata/labels/"); ok {
		p.Labels[k] = text
		return nil
	}
	k, ok := key("/metadata/annotations/")
	if !ok {
		return fmt.Errorf("path %s is not known", o.Path)
	}
	if slices.Contains(times, k) {
		text = shifted(text, r.clock)
	}
	p.Annotations[k] = text
	return nil
}

// times are the annotations that hold one.
var times = []string{pool.AnnotationAssignedAt, pool.AnnotationReadyAt, pool.AnnotationDrainingAt}

// shifted is an annotation's time by another clock.
func shifted(text string, by time.Duration) string {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || by == 0 {
		return text
	}
	return pool.FormatTime(t.Add(by))
}

// local is the pod as the replica, whose clock is wrong, understands its times.
func (r *replica) local(p *corev1.Pod) *corev1.Pod {
	if r.clock == 0 {
		return p
	}
	p = p.DeepCopy()
	for _, k := range times {
		if text, ok := p.Annotations[k]; ok {
			p.Annotations[k] = shifted(text, -r.clock)
		}
	}
	p.CreationTimestamp = metav1.NewTime(p.CreationTimestamp.Add(-r.clock))
	for i := range p.Status.ContainerStatuses {
		if run := p.Status.ContainerStatuses[i].State.Running; run != nil {
			run.StartedAt = metav1.NewTime(run.StartedAt.Add(-r.clock))
		}
	}
	return p
}
