package watch

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"skipper/controller/pool"
)

// Values of the metrics' label resource.
const (
	functionPods = "function_pods"
	ownPods      = "own_pods"
	replicaSets  = "replica_sets"
)

func (w *Watch) podHandler() cache.ResourceEventHandler {
	apply := func(p *corev1.Pod) { w.cfg.View.Apply(pool.FromPod(p, w.cfg.Functions)) }
	return handler[*corev1.Pod]{
		watch: w, resource: functionPods,
		apply: apply,
		remove: func(p *corev1.Pod) {
			read := pool.FromPod(p, w.cfg.Functions)
			w.cfg.View.Remove(read.Namespace, read.UID, read.Version)
		},
	}
}

func (w *Watch) replicaSetHandler() cache.ResourceEventHandler {
	return handler[*appsv1.ReplicaSet]{
		watch: w, resource: replicaSets,
		apply:  func(r *appsv1.ReplicaSet) { w.cfg.View.ApplyReplicaSet(pool.FromReplicaSet(r)) },
		remove: func(r *appsv1.ReplicaSet) { w.cfg.View.RemoveReplicaSet(pool.FromReplicaSet(r)) },
	}
}

// ownHandler hands on all replicas at each change of one: they are few.
func (w *Watch) ownHandler(store cache.Store) cache.ResourceEventHandler {
	tell := func(*corev1.Pod) { w.cfg.OwnPods(members(store.List(), w.cfg.Functions)) }
	return handler[*corev1.Pod]{watch: w, resource: ownPods, apply: tell, remove: tell}
}

// Member is a controller replica.
type Member struct {
	IP          string
	Ready       bool
	Terminating bool
}

// members reads the replicas that have an address, ordered by it.
func members(objects []any, functions *pool.Parser) []Member {
	var list []Member
	for _, o := range objects {
		p, ok := o.(*corev1.Pod)
		if !ok {
			continue
		}
		read := pool.FromPod(p, functions)
		if read.IP != "" && !read.Finished() {
			list = append(list, Member{IP: read.IP, Ready: read.Ready, Terminating: read.Deleting})
		}
	}
	slices.SortFunc(list, func(a, b Member) int { return cmp.Compare(a.IP, b.IP) })
	return list
}

// object is what the handlers need of any kind.
type object interface {
	comparable
	metaObject
}

// handler converts events of one kind and hands them on.
type handler[T object] struct {
	watch         *Watch
	resource      string
	apply, remove func(T)
}

// OnAdd implements cache.ResourceEventHandler.
func (h handler[T]) OnAdd(obj any, initial bool) {
	o, ok := obj.(T)
	if !ok {
		return
	}
	h.watch.metrics.added(h.resource, o, initial, time.Now())
	h.apply(o)
}

// OnUpdate implements cache.ResourceEventHandler. A resync shows the same
// version again, which is no news. An object that was deleted and made anew
// under its name while the watch was away comes as an update too.
func (h handler[T]) OnUpdate(oldObj, obj any) {
	o, ok := obj.(T)
	if !ok {
		return
	}
	old, ok := oldObj.(T)
	if ok && old.GetResourceVersion() == o.GetResourceVersion() && o.GetResourceVersion() != "" {
		h.watch.metrics.counted(h.resource, kindResync)
		return
	}
	if ok && old.GetUID() != o.GetUID() {
		h.watch.metrics.counted(h.resource, kindDelete)
		h.remove(old)
		h.watch.metrics.counted(h.resource, kindAdd)
		h.apply(o)
		return
	}
	h.watch.metrics.counted(h.resource, kindUpdate)
	h.apply(o)
}

// OnDelete implements cache.ResourceEventHandler. A tombstone stands for an
// object whose deletion the watch missed; its time says nothing.
func (h handler[T]) OnDelete(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	} else if o, ok := obj.(T); ok {
		h.watch.metrics.deleted(h.resource, o, time.Now())
	}
	o, ok := obj.(T)
	if !ok {
		return
	}
	h.watch.metrics.counted(h.resource, kindDelete)
	h.remove(o)
}
