package sim

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// deployment is a pool, with its ReplicaSets.
type deployment struct {
	namespace, name string
	replicas        int32
	revision        int
}

func (d *deployment) set(revision int) string { return fmt.Sprint(d.name, "-", revision) }

// setLocked is a ReplicaSet as it is now.
func (d *deployment) replicaSet(revision int) pool.ReplicaSet {
	rs := pool.ReplicaSet{Namespace: d.namespace, Name: d.set(revision), Deployment: d.name, Revision: int64(revision)}
	if revision == d.revision {
		rs.Replicas = d.replicas
	}
	return rs
}

// roll makes another ReplicaSet the only active one.
func (w *world) roll(d *deployment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d.revision++
	w.trace.add("rollout", "%s is at revision %d", d.name, d.revision)
	w.showLocked(change{set: d.replicaSet(d.revision)})
	if d.revision > 1 {
		w.showLocked(change{set: d.replicaSet(d.revision - 1)})
	}
}

// resize changes how many pods the pool keeps.
func (w *world) resize(d *deployment, n int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d.replicas = n
	w.showLocked(change{set: d.replicaSet(d.revision)})
}

// reconcile is the ReplicaSet controller: it lets go of pods that were claimed,
// makes what is missing and deletes what is too many.
func (w *world) reconcile(d *deployment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	have := int32(0)
	for _, p := range w.podsLocked() {
		if p.Namespace != d.namespace || p.Labels[pool.LabelDeployment] != d.name || len(p.OwnerReferences) == 0 || p.DeletionTimestamp != nil {
			continue
		}
		switch current := p.OwnerReferences[0].Name == d.set(d.revision); {
		case p.Labels[pool.LabelTenant] != "":
			w.editLocked(string(p.UID), func(p *corev1.Pod) { p.OwnerReferences = nil })
		case p.Status.Phase == corev1.PodFailed:
			w.deleteLocked(p)
		case current && have < d.replicas:
			have++
		default:
			w.deleteLocked(p)
		}
	}
	for ; have < d.replicas; have++ {
		w.createLocked(d)
	}
}

// names of a ReplicaSet's pods; few, so that they are used again.
const names = 30

func (w *world) createLocked(d *deployment) {
	uid := fmt.Sprint("u", w.seq, "-", len(w.ended)+len(w.bodies))
	var p *corev1.Pod
	for i := range names {
		name := fmt.Sprint(d.set(d.revision), "-", (i+w.claims)%names)
		if w.api.pods[d.namespace+"/"+name] == nil {
			p = d.pod(name, uid)
			break
		}
	}
	if p == nil {
		return
	}
	w.api.version++ // makes addresses and UIDs new
	uid = fmt.Sprint("u", w.api.version)
	p.UID = types.UID(uid)
	ip := fmt.Sprintf("10.%d.%d.%d", w.api.version>>16&255, w.api.version>>8&255, w.api.version&255)
	w.bodies[uid] = &body{uid: uid, name: nameOf(p), addr: ip, keeps: w.luckLocked("keeps", uid)%3 == 0}
	w.storeLocked(p)
	w.afterLocked(between(w.luckLocked("start", uid), 300*time.Millisecond, 2*time.Second), func() { w.startPod(uid, ip) })
}

func (d *deployment) pod(name, uid string) *corev1.Pod {
	yes := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.namespace, Name: name, UID: types.UID(uid), CreationTimestamp: metav1.Now(),
			Labels:          map[string]string{pool.LabelDeployment: d.name},
			Annotations:     map[string]string{"made-by": "template"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: d.set(d.revision), Controller: &yes}},
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

func (w *world) startPod(uid, ip string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.editLocked(uid, func(p *corev1.Pod) {
		p.Status.Phase, p.Status.PodIP = corev1.PodRunning, ip
		setReady(p, true)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}
		w.bodies[uid].alive = true
	})
}

func setReady(p *corev1.Pod, ready bool) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == corev1.PodReady {
			p.Status.Conditions[i].Status = status
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: status})
}

// body is what runs, whatever the API server says.
type body struct {
	uid, name, addr string
	alive           bool      // it answers
	keeps           bool      // its assignment over a restart
	function        fn.Key    // that it accepted; zero: none
	confirmed       bool      // a controller knows that it accepted
	writtenAt       time.Time // when the API server was told so
	outsider        bool      // somebody else than a controller ends it
	requests        int       // that ever came
}

// deleteLocked is a deletion with grace.
func (w *world) deleteLocked(p *corev1.Pod) {
	if p.DeletionTimestamp != nil {
		return
	}
	uid := string(p.UID)
	w.editLocked(uid, func(p *corev1.Pod) {
		now, grace := metav1.Now(), int64(podGrace/time.Second)
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &grace
	})
	takes := between(w.luckLocked("stop", uid), 200*time.Millisecond, 1500*time.Millisecond)
	if len(w.open[uid]) > 0 {
		takes = podGrace
	}
	w.afterLocked(takes, func() { w.endBody(uid, true) })
}

// endBody ends what runs; the pod leaves the API server soon after, if it does.
func (w *world) endBody(uid string, erased bool) {
	w.mu.Lock()
	b := w.bodies[uid]
	if b == nil {
		w.mu.Unlock()
		return
	}
	b.alive = false
	w.ended[uid] = true
	if erased {
		w.afterLocked(between(w.luckLocked("erase", uid), 0, 300*time.Millisecond), func() { w.erase(uid) })
	}
	cut := w.runningLocked(uid)
	w.mu.Unlock()
	for _, r := range cut {
		w.finish(r, "its pod has ended")
	}
}

func (w *world) erase(uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.podOfLocked(uid); p != nil {
		w.eraseLocked(p)
	}
}

// failPod is a pod that failed by itself.
func (w *world) failPod(uid string) {
	w.outsider(uid)
	w.mu.Lock()
	w.editLocked(uid, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodFailed
		setReady(p, false)
	})
	w.mu.Unlock()
	w.endBody(uid, false)
}

// evictPod is an eviction: a mark, and soon a deletion.
func (w *world) evictPod(uid string) {
	w.outsider(uid)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.editLocked(uid, func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
	})
	w.afterLocked(between(w.luckLocked("evict", uid), 0, 5*time.Second), func() { w.removePod(uid) })
}

// removePod is a deletion by somebody else.
func (w *world) removePod(uid string) {
	w.outsider(uid)
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.podOfLocked(uid); p != nil {
		w.deleteLocked(p)
	}
}

// losePod is a node that is lost: the pod is gone, and later its object.
func (w *world) losePod(uid string) {
	w.outsider(uid)
	w.endBody(uid, false)
	w.after(w.upTo(0, 10*time.Second), func() { w.erase(uid) })
}

func (w *world) outsider(uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b := w.bodies[uid]; b != nil {
		b.outsider = true
	}
}

// restartPod restarts the container: requests are lost, and mostly the
// assignment too.
func (w *world) restartPod(uid string) {
	w.mu.Lock()
	b := w.bodies[uid]
	if b == nil || !b.alive {
		w.mu.Unlock()
		return
	}
	b.alive, b.confirmed = false, false
	if !b.keeps {
		b.function = fn.Key{}
	}
	w.editLocked(uid, func(p *corev1.Pod) {
		setReady(p, false)
		s := &p.Status.ContainerStatuses[0]
		s.RestartCount++
		s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	})
	cut := w.runningLocked(uid)
	w.mu.Unlock()
	for _, r := range cut {
		w.finish(r, "its container restarted")
	}
	w.after(w.upTo(200*time.Millisecond, 3*time.Second), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.ended[uid] {
			return
		}
		b.alive = true
		w.editLocked(uid, func(p *corev1.Pod) { setReady(p, true) })
	})
}

// poster takes assignments to pods.
type poster struct{ r *replica }

var errRefused = errors.New("pod answered 500")

func (p poster) Assign(ctx context.Context, pod pool.Pod, f *skipperpb.Function) error {
	w := p.r.w
	luck := w.luck("assign", pod.UID)
	most := 100 * time.Millisecond
	if luck>>40%10 == 0 {
		most = 7 * time.Second // some are slow, and some too slow
	}
	ctx, cancel := context.WithTimeout(ctx, assignTimeout)
	defer cancel()
	if !p.r.rest(ctx, between(luck, 5*time.Millisecond, most)) {
		return context.Cause(ctx)
	}
	lost, err := p.accept(pod, f)
	if err != nil {
		return err
	}
	if lost || !p.r.rest(ctx, between(luck>>8, time.Millisecond, 20*time.Millisecond)) {
		return errors.New("connection was reset")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if b := w.bodies[pod.UID]; b != nil && p.r.life.Err() == nil {
		b.confirmed = b.alive && b.function == fn.KeyOf(f)
	}
	return nil
}

// accept is the pod's part; lost says that its answer does not get back.
func (p poster) accept(pod pool.Pod, f *skipperpb.Function) (lost bool, err error) {
	w, key := p.r.w, fn.KeyOf(f)
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.bodies[pod.UID]
	if b == nil || !b.alive || p.r.life.Err() != nil {
		return false, errors.New("connection refused")
	}
	zero := fn.Key{}
	if b.function != zero && b.function != key {
		w.violateLocked("3", "pod %s is %s and was assigned to %s too", b.uid, b.function, key)
	}
	if w.badLocked(key) && b.function == zero {
		return false, errRefused
	}
	b.function = key
	return w.luckLocked("reset", strconv.Itoa(len(b.uid)))%200 == 0, nil
}
