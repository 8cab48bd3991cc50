package pool

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"skipper/proto/fn"
)

// View owns all known function pods. What it shows of a pod is the newest of
// what the informer brought (Apply) and what this replica wrote (the Expect
// methods): an informer object with a lower version than our own write never
// undoes it. Safe for concurrent use; no method waits for a listener or for
// the network. An event costs the same however many pods there are.
type View struct {
	mu sync.Mutex
	// The fields below are guarded by mu.
	pods        map[string]*entry                 // by UID
	names       map[name]*entry                   // the newest pod of each name
	unassigned  map[poolKey]map[string]*entry     // by UID
	instances   map[fn.Key][]*entry               // ordered by instanceOrder
	retiring    map[string]*entry                 // claimed pods that are draining or dead
	known       map[poolKey]struct{}              // never shrinks: one per Deployment ever seen
	replicaSets map[poolKey]map[string]ReplicaSet // by name
	watermarks  map[string]uint64                 // by namespace
	listeners   map[*listener]struct{}
}

type poolKey struct{ namespace, deployment string }

type name struct{ namespace, name string }

// entry is what the View holds of one pod. shown is what callers see; it is
// replaced, never changed, so pointers to it may leave the lock.
type entry struct {
	seen  *Pod // newest from the informer
	shown *Pod
	overlay
}

// NewView returns an empty View.
func NewView() *View {
	return &View{
		pods:        map[string]*entry{},
		names:       map[name]*entry{},
		unassigned:  map[poolKey]map[string]*entry{},
		instances:   map[fn.Key][]*entry{},
		retiring:    map[string]*entry{},
		known:       map[poolKey]struct{}{},
		replicaSets: map[poolKey]map[string]ReplicaSet{},
		watermarks:  map[string]uint64{},
		listeners:   map[*listener]struct{}{},
	}
}

// Apply records a pod that the informer showed, new or changed. An object older
// than one applied before is ignored.
func (v *View) Apply(p Pod) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watermarks[p.Namespace] = max(v.watermarks[p.Namespace], p.Version)
	v.known[poolKey{p.Namespace, p.Deployment}] = struct{}{}
	e := v.pods[p.UID]
	if e == nil {
		e = &entry{}
		v.pods[p.UID] = e
	} else if older(p.Version, e.seen.Version) {
		return
	}
	e.seen = &p
	e.settle(e.seen)
	if !v.show(e) && e.shown.Marked && e.shown.State() >= Draining {
		// No news here, but lists that lack the pod have only now become newer
		// than those that had it: whoever sends lists must send one more.
		v.emit(Event{Kind: Changed, Old: e.shown, New: e.shown})
	}
}

// Remove records that the informer saw the pod vanish. Version is the last one
// known of it, 0 where none is. Unknown pods are ignored.
func (v *View) Remove(namespace, uid string, version uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watermarks[namespace] = max(v.watermarks[namespace], version)
	e := v.pods[uid]
	if e == nil {
		return
	}
	delete(v.pods, uid)
	v.unindex(e)
	old := e.shown
	e.shown = nil
	v.emit(Event{Kind: Removed, Old: old})
}

// show computes what e shows now, and if that is news, puts the indexes right
// and tells the listeners. It reports whether it was. The caller holds mu.
func (v *View) show(e *entry) bool {
	next, old := e.over(e.seen), e.shown
	if old != nil && same(*old, *next) {
		// Only the version moved: keep it for readers, it is no event.
		e.shown = next
		return false
	}
	if old != nil {
		v.unindex(e)
	}
	e.shown = next
	v.index(e)
	if old == nil {
		v.emit(Event{Kind: Added, New: e.shown})
		return true
	}
	v.emit(Event{Kind: Changed, Old: old, New: e.shown})
	return true
}

func (v *View) index(e *entry) {
	p := e.shown
	v.names[name{p.Namespace, p.Name}] = e
	switch state := p.State(); {
	case state == Unassigned:
		k := poolKey{p.Namespace, p.Deployment}
		if v.unassigned[k] == nil {
			v.unassigned[k] = map[string]*entry{}
		}
		v.unassigned[k][p.UID] = e
	case p.Marked && (state == Draining || state == Dead):
		v.retiring[p.UID] = e
	}
	if p.isInstance() {
		list := v.instances[p.Key]
		at, _ := slices.BinarySearchFunc(list, e, entryOrder)
		v.instances[p.Key] = slices.Insert(list, at, e)
	}
}

func (v *View) unindex(e *entry) {
	p := e.shown
	if n := (name{p.Namespace, p.Name}); v.names[n] == e {
		delete(v.names, n)
	}
	delete(v.retiring, p.UID)
	k := poolKey{p.Namespace, p.Deployment}
	if delete(v.unassigned[k], p.UID); len(v.unassigned[k]) == 0 {
		delete(v.unassigned, k)
	}
	if !p.isInstance() {
		return
	}
	list := v.instances[p.Key]
	if at, found := slices.BinarySearchFunc(list, e, entryOrder); found {
		list = slices.Delete(list, at, at+1)
	}
	if v.instances[p.Key] = list; len(list) == 0 {
		delete(v.instances, p.Key)
	}
}

// isInstance says that the pod counts as an instance of its function: claimed,
// and neither being deleted nor dead.
func (p *Pod) isInstance() bool {
	s := p.State()
	return p.Function != nil && s != Terminating && s != Dead && s != Unassigned
}

func entryOrder(a, b *entry) int { return InstanceOrder(*a.shown, *b.shown) }

// InstanceOrder sorts pods by the time of their claim, then UID: every replica
// that knows the same pods has them in the same order.
func InstanceOrder(a, b Pod) int {
	return cmp.Or(a.AssignedAt.Compare(b.AssignedAt), cmp.Compare(a.UID, b.UID))
}

// older says that version a is certainly older than b; 0 is unknown.
func older(a, b uint64) bool { return a != 0 && b != 0 && a < b }

// Instances returns the function's instances in InstanceOrder: assigned, ready
// and draining ones; pods that are being deleted or dead are none any more.
func (v *View) Instances(key fn.Key) []Pod {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := v.instances[key]
	pods := make([]Pod, len(list))
	for i, e := range list {
		pods[i] = *e.shown
	}
	return pods
}

// Unassigned returns the pool's unclaimed pods, ready or not, in no particular
// order. The pods are shared: read only.
func (v *View) Unassigned(namespace, deployment string) []*Pod {
	v.mu.Lock()
	defer v.mu.Unlock()
	set := v.unassigned[poolKey{namespace, deployment}]
	pods := make([]*Pod, 0, len(set))
	for _, e := range set {
		pods = append(pods, e.shown)
	}
	return pods
}

// Functions returns the functions that have instances, in no particular order.
func (v *View) Functions() []fn.Key {
	v.mu.Lock()
	defer v.mu.Unlock()
	keys := make([]fn.Key, 0, len(v.instances))
	for k := range v.instances {
		keys = append(keys, k)
	}
	return keys
}

// Retiring returns the claimed pods that are draining or dead, by UID order:
// those that somebody has to delete in the end.
func (v *View) Retiring() []Pod {
	v.mu.Lock()
	pods := make([]Pod, 0, len(v.retiring))
	for _, e := range v.retiring {
		pods = append(pods, *e.shown)
	}
	v.mu.Unlock()
	slices.SortFunc(pods, func(a, b Pod) int { return cmp.Compare(a.UID, b.UID) })
	return pods
}

// All returns every known pod, in no particular order.
func (v *View) All() []Pod {
	v.mu.Lock()
	defer v.mu.Unlock()
	pods := make([]Pod, 0, len(v.pods))
	for _, e := range v.pods {
		pods = append(pods, *e.shown)
	}
	return pods
}

// Pod returns the pod with the UID; false where none is known.
func (v *View) Pod(uid string) (Pod, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e := v.pods[uid]; e != nil {
		return *e.shown, true
	}
	return Pod{}, false
}

// Named returns the newest known pod of that name; false where none is known.
func (v *View) Named(namespace, podName string) (Pod, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e := v.names[name{namespace, podName}]; e != nil {
		return *e.shown, true
	}
	return Pod{}, false
}

// Known says whether a pod or ReplicaSet of the pool was ever seen.
func (v *View) Known(namespace, deployment string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, ok := v.known[poolKey{namespace, deployment}]
	return ok
}

// Watermark is the highest resource version that the informer has shown of
// pods in the namespace; replies to our own writes do not count. 0: none yet.
func (v *View) Watermark(namespace string) uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.watermarks[namespace]
}

// update changes the expectations of a pod; unknown pods are ignored, because
// only what was seen can be written, so an unknown pod is one that is gone.
func (v *View) update(uid string, change func(*overlay)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e := v.pods[uid]; e != nil {
		change(&e.overlay)
		v.show(e)
	}
}

// wallClock is t as annotations hold it: UTC, milliseconds.
func wallClock(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
