package apistub

import (
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// change is one write.
type change struct {
	version uint64
	kind    watch.EventType
	gvr     schema.GroupVersionResource
	object  Object
}

// table holds the objects of one resource, in the order of their creation. Its
// objects are replaced, never changed.
type table struct {
	objects []Object
	index   map[string]int // by namespace/name
}

// store holds all objects, and all changes since the newest load.
type store struct {
	mu sync.Mutex
	// The fields below are guarded by mu.
	version uint64
	first   uint64 // version before the first of changes
	tables  map[schema.GroupVersionResource]*table
	changes []change
	changed chan struct{} // closed at the next change
}

func newStore() *store {
	return &store{tables: map[schema.GroupVersionResource]*table{}, changed: make(chan struct{})}
}

func keyOf(o Object) string { return o.GetNamespace() + "/" + o.GetName() }

// load is put without a change that can be watched.
func (s *store) load(gvr schema.GroupVersionResource, o Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepLocked(gvr, o)
	s.first, s.changes = s.version, nil
}

func (s *store) put(gvr schema.GroupVersionResource, o Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changeLocked(gvr, o)
}

func (s *store) create(gvr schema.GroupVersionResource, o Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.getLocked(gvr, keyOf(o)) != nil {
		return apierrors.NewAlreadyExists(gvr.GroupResource(), o.GetName())
	}
	s.changeLocked(gvr, o)
	return nil
}

// update refuses an object that names another version than the present one.
func (s *store) update(gvr schema.GroupVersionResource, o Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.getLocked(gvr, keyOf(o))
	if was == nil {
		return apierrors.NewNotFound(gvr.GroupResource(), o.GetName())
	}
	if v := o.GetResourceVersion(); v != "" && v != was.GetResourceVersion() {
		return apierrors.NewConflict(gvr.GroupResource(), o.GetName(), errStale)
	}
	s.changeLocked(gvr, o)
	return nil
}

func (s *store) changeLocked(gvr schema.GroupVersionResource, o Object) {
	kind := watch.Modified
	if s.keepLocked(gvr, o) {
		kind = watch.Added
	}
	s.changes = append(s.changes, change{s.version, kind, gvr, o})
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *store) keepLocked(gvr schema.GroupVersionResource, o Object) (added bool) {
	s.version++
	o.SetResourceVersion(strconv.FormatUint(s.version, 10))
	t := s.tables[gvr]
	if t == nil {
		t = &table{index: map[string]int{}}
		s.tables[gvr] = t
	}
	key := keyOf(o)
	if i, ok := t.index[key]; ok {
		t.objects[i] = o
		return false
	}
	t.index[key] = len(t.objects)
	t.objects = append(t.objects, o)
	return true
}

func (s *store) get(gvr schema.GroupVersionResource, namespace, name string) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.getLocked(gvr, namespace+"/"+name)
}

// getLocked returns nil where there is none.
func (s *store) getLocked(gvr schema.GroupVersionResource, key string) Object {
	if t := s.tables[gvr]; t != nil {
		if i, ok := t.index[key]; ok {
			return t.objects[i]
		}
	}
	return nil
}

func (s *store) now() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// list returns the objects that are selected, and the version at which they are so.
func (s *store) list(gvr schema.GroupVersionResource, which selection) ([]Object, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Object
	if t := s.tables[gvr]; t != nil {
		for _, o := range t.objects {
			if which.matches(o) {
				out = append(out, o)
			}
		}
	}
	return out, s.version
}

// since returns the changes after a version, the version that they lead to, and
// what is closed at the next one; false where they are not known any more.
func (s *store) since(version uint64) (_ []change, until uint64, next <-chan struct{}, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version < s.first {
		return nil, 0, nil, false
	}
	i, _ := slices.BinarySearchFunc(s.changes, version+1, func(c change, v uint64) int { return int(c.version) - int(v) }) //nolint:gosec // versions are few
	return s.changes[i:len(s.changes):len(s.changes)], s.version, s.changed, true
}
