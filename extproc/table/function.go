package table

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	skipperpb "skipper/proto"
	"skipper/proto/fn"

	"skipper/extproc/header"
)

// View is the instances of one function at one moment, the newest first.
// Immutable.
type View struct {
	Instances []*Instance
	// Near are those of Instances that are in the zone of this process; nil where
	// that is unknown.
	Near []*Instance
	// evicted says that the function has left the table: look it up again.
	evicted bool
}

// Function is one function in the table. Safe for concurrent use.
type Function struct {
	// Key is the function's identity.
	Key  fn.Key
	zone string // of this process

	view atomic.Pointer[View]
	// config is how the function was named last: metadata and scale may change.
	config atomic.Pointer[header.Function]
	// used says that a request came since the last look.
	used atomic.Bool

	mu   sync.Mutex
	book book
	// counts of pods that are known, and of others while requests are in progress there.
	counts map[string]*counter
	// lastUsed is when used was last found set.
	lastUsed time.Time
	// told says that the last usage had requests in progress.
	told bool
}

func newFunction(h *header.Function, zone string, now time.Time) *Function {
	f := &Function{Key: h.Key, zone: zone, book: newBook(), counts: map[string]*counter{}, lastUsed: now}
	f.config.Store(h)
	f.view.Store(&View{})
	return f
}

// View returns the instances that requests may be sent to.
func (f *Function) View() *View { return f.view.Load() }

// Evicted reports whether the function has left the table: look it up again.
func (f *Function) Evicted() bool { return f.View().evicted }

// touch notes that a request named the function in this way.
func (f *Function) touch(h *header.Function) {
	if f.config.Load() != h {
		f.config.Store(h)
	}
	f.use()
}

// use notes that the function is in use.
func (f *Function) use() {
	if !f.used.Load() {
		f.used.Store(true)
	}
}

// Acquire counts one more request on i, which was picked from v, and then looks
// whether i may still be used. If not, nothing is counted and the answer is false.
func (f *Function) Acquire(v *View, i *Instance) (Lease, bool) {
	i.count.n.Add(1)
	if now := f.view.Load(); now == v || now.holds(i) {
		return Lease{Instance: i, Function: f}, true
	}
	i.count.n.Add(-1)
	return Lease{}, false
}

func (v *View) holds(i *Instance) bool {
	for _, other := range v.Instances {
		if other.count == i.count {
			return true
		}
	}
	return false
}

// hold counts one more request on i whatever the view says; false if the function
// has left the table.
func (f *Function) hold(i *Instance) (Lease, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Evicted() {
		return Lease{}, false
	}
	switch c := f.counts[i.UID]; c {
	case i.count:
	case nil: // forgotten as idle since the answer
		f.counts[i.UID] = i.count
	default:
		i = newInstance(i.Proto, c)
	}
	i.count.n.Add(1)
	return Lease{Instance: i, Function: f}, true
}

// push takes a list from xDS; it reports whether the function has an instance
// now that it had not before.
func (f *Function) push(fi *skipperpb.FunctionInstances, now time.Time) (woke bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	own := make([]*skipperpb.Instance, 0, len(fi.GetInstances()))
	for _, i := range fi.GetInstances() {
		if f.Owns(i) {
			own = append(own, i)
		}
	}
	f.book.push(own, fi.GetVersion(), now, f.countLocked)
	return f.publishLocked()
}

// Owns reports whether i is an instance of f, as far as it says. Whoever sends
// it may err, but requests of one tenant never go to another's pod.
func (f *Function) Owns(i *skipperpb.Instance) bool {
	return i.GetFunction() == nil || fn.KeyOf(i.GetFunction()) == f.Key
}

// Learn takes an instance that the controller answered with, which f must own.
// It returns nil if the pod is known to be gone. An instance of a oneshot is for the caller alone
// and enters no view.
func (f *Function) Learn(i *skipperpb.Instance, now time.Time) *Instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Key.Oneshot {
		return newInstance(i, f.countLocked(i.GetUid()))
	}
	if !f.book.answer(i, now, f.countLocked) {
		return nil
	}
	f.publishLocked()
	return f.book.known[i.GetUid()].instance
}

// expire drops instances that no push has confirmed.
func (f *Function) expire(before time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.book.expire(before) {
		f.publishLocked()
	}
}

func (f *Function) countLocked(uid string) *counter {
	c := f.counts[uid]
	if c == nil {
		c = &counter{}
		f.counts[uid] = c
	}
	return c
}

func (f *Function) publishLocked() (woke bool) {
	old := f.view.Load()
	if old.evicted {
		return false
	}
	v := &View{Instances: f.book.list()}
	v.Near = near(v.Instances, f.zone)
	f.view.Store(v)
	return v.hasMoreThan(old)
}

// near are those in the zone, in the same order; nil for an unknown zone.
func near(all []*Instance, zone string) []*Instance {
	if zone == "" {
		return nil
	}
	var out []*Instance
	for _, i := range all {
		if i.Proto.GetZone() == zone {
			out = append(out, i)
		}
	}
	return out
}

// hasMoreThan reports whether v holds a pod that old does not.
func (v *View) hasMoreThan(old *View) bool {
	had := make(map[*counter]bool, len(old.Instances))
	for _, i := range old.Instances {
		had[i.count] = true
	}
	return slices.ContainsFunc(v.Instances, func(i *Instance) bool { return !had[i.count] })
}

// Usage is what one function was used for.
type Usage struct {
	// Function as it was named last.
	Function *skipperpb.Function
	// InFlight is the number of requests in progress by pod UID, without zeros.
	InFlight map[string]uint32
	Total    uint32
	// Failures is how many attempts failed by pod UID since the last look,
	// without zeros.
	Failures map[string]uint32
	// Idle is how long ago the last request came, or was found in progress.
	Idle time.Duration
}

// usage counts what is in progress, takes the failures, and forgets the counters of pods that are
// gone and idle.
func (f *Function) usage(now time.Time) Usage {
	f.mu.Lock()
	defer f.mu.Unlock()
	u := Usage{Function: f.config.Load().Spec}
	for uid, c := range f.counts {
		n := c.n.Load()
		if n > 0 {
			put(&u.InFlight, uid, uint32(n))
			u.Total += uint32(n)
		}
		if failed := c.failures.Swap(0); failed > 0 {
			put(&u.Failures, uid, failed)
		}
		if n == 0 && f.book.known[uid] == nil {
			delete(f.counts, uid)
		}
	}
	if f.used.Swap(false) || u.Total > 0 {
		f.lastUsed = now
	}
	u.Idle, f.told = now.Sub(f.lastUsed), u.Total > 0
	return u
}

// owes says that somebody believes that the function has requests in progress.
func (f *Function) owes() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.told
}

func put(m *map[string]uint32, k string, n uint32) {
	if *m == nil {
		*m = map[string]uint32{}
	}
	(*m)[k] = n
}

// restore counts failures that were taken but not reported.
func (f *Function) restore(failures map[string]uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for uid, n := range failures {
		f.countLocked(uid).failures.Add(n)
	}
}

// evict takes the function out of use if it has been idle for the given time
// and nothing is in progress; it reports whether it did.
func (f *Function) evict(now time.Time, idle time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.used.Load() && now.Sub(f.lastUsed) >= idle && f.withdrawLocked()
}

// expel takes the function out of use if nothing is in progress; it reports
// whether it did.
func (f *Function) expel() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.withdrawLocked()
}

// withdrawLocked withdraws the view before it reads the counters: whoever raised
// one before that is seen, whoever does later finds the view withdrawn.
func (f *Function) withdrawLocked() bool {
	old := f.view.Swap(&View{evicted: true})
	for _, c := range f.counts {
		if c.n.Load() > 0 {
			f.view.Store(old)
			return false
		}
	}
	return true
}

// worth tells what the table loses by the function.
func (f *Function) worth() worth {
	f.mu.Lock()
	defer f.mu.Unlock()
	return worth{instances: len(f.view.Load().Instances) > 0, used: f.used.Load(), lastUsed: f.lastUsed}
}
