package watch

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
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
	return handler[*seen]{
		watch: w, resource: functionPods,
		apply:  func(s *seen) { w.cfg.View.Apply(s.pod) },
		remove: func(s *seen) { w.cfg.View.Remove(s.pod.Namespace, s.pod.UID, s.pod.Version) },
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
	tell := func(*seen) { w.cfg.OwnPods(members(store.List())) }
	return handler[*seen]{watch: w, resource: ownPods, apply: tell, remove: tell}
}

// Member is a controller replica.
type Member struct {
	IP          string
	Ready       bool
	Terminating bool
}

// members reads the replicas that have an address, ordered by it.
func members(objects []any) []Member {
	var list []Member
	for _, o := range objects {
		if s, ok := o.(*seen); ok && s.pod.IP != "" && !s.pod.Finished() {
			list = append(list, Member{IP: s.pod.IP, Ready: s.pod.Ready, Terminating: s.pod.Deleting})
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

// handler hands events of one kind on.
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
