package table

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"

	"skipper/extproc/header"
)

// Subscriber is told which functions pushes are wanted for. Calls must not
// block: they are made under a lock, so that they keep their order.
type Subscriber interface {
	Subscribe(name string)
	Unsubscribe(name string)
}

// Options of a Table.
type Options struct {
	// Subscriber may be nil: then nothing is pushed.
	Subscriber Subscriber
	// Staleness is how long the table is used after it was last in step with a
	// controller (contract: --table-staleness, 5 min).
	Staleness time.Duration
	// Confirm is how long an instance may be known from an answer alone.
	Confirm time.Duration
	// Idle is after how long without a request a function is evicted.
	Idle time.Duration
	// Most is how many functions the table holds: one that is added beyond takes
	// the place of another that has no request in progress. Where there is none
	// such among those next to it there are more, 256 at most beside those with
	// requests in progress. 0: no bound.
	Most int
	// Zone is where this process is; empty: unknown.
	Zone string
	// Woken is called, outside all locks, when a push gives a function an
	// instance that it had not; may be nil.
	Woken func(name string)
	// Now is when the table was made: until Staleness later it counts as fresh.
	Now time.Time
}

// shardCount bounds what is copied when a function is added: the map of one shard.
const shardCount = 256

// settle is how long a connection must last until the table counts as in step:
// after a reconnect the lists that changed meanwhile are on their way.
const settle = time.Second

// Table holds all functions in use. Safe for concurrent use.
type Table struct {
	opts   Options
	shards [shardCount]shard
	stale  atomic.Bool
	size   atomic.Int64

	mu sync.Mutex
	// heard is when the table was last known to be in step with a controller.
	heard time.Time
	// connected is since when it is so; zero while it is not.
	connected time.Time
	lost      []lost
	// parted are functions that made room while the last that was told of them is
	// that requests are in progress.
	parted []*Function
}

type shard struct {
	mu   sync.Mutex
	view atomic.Pointer[map[string]*Function]
}

// lost is a lease whose end was not seen.
type lost struct {
	lease Lease
	until time.Time
}

// New returns an empty table.
func New(o Options) *Table {
	t := &Table{opts: o, heard: o.Now}
	for i := range t.shards {
		t.shards[i].view.Store(&map[string]*Function{})
	}
	return t
}

// Stale reports that no synced controller was heard of for too long: views must
// not be used.
func (t *Table) Stale() bool { return t.stale.Load() }

// Size is the number of functions in the table.
func (t *Table) Size() int { return int(t.size.Load()) }

// Function returns the function that h names, as in use now: h, which a request
// has just come with, is the newest word on its configuration. The function is
// added and subscribed to where it is missing.
func (t *Table) Function(h *header.Function) *Function {
	f := t.entry(h)
	f.touch(h)
	return f
}

// Again is Function for a request that came with h some time ago: newer ones may
// have named another configuration meanwhile, which stays.
func (t *Table) Again(h *header.Function) *Function {
	f := t.entry(h)
	f.use()
	return f
}

func (t *Table) entry(h *header.Function) *Function {
	s := &t.shards[h.Hash%shardCount]
	if f := (*s.view.Load())[h.Name]; f != nil {
		return f
	}
	return t.add(s, h)
}

func (t *Table) add(s *shard, h *header.Function) *Function {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := (*s.view.Load())[h.Name]; f != nil {
		return f
	}
	f := newFunction(h, t.opts.Zone, time.Now())
	m := maps.Clone(*s.view.Load())
	if t.opts.Most > 0 && t.Size() >= t.opts.Most {
		t.makeRoom(m)
	}
	m[h.Name] = f
	s.view.Store(&m)
	t.size.Add(1)
	if t.opts.Subscriber != nil && !h.Key.Oneshot {
		t.opts.Subscriber.Subscribe(h.Name)
	}
	return f
}

// makeRoom removes the function of m, a shard's, that is worth least, of those
// that have no request in progress. Shards hold like numbers of like functions,
// so that it is not far from the least of all.
func (t *Table) makeRoom(m map[string]*Function) {
	names := slices.Collect(maps.Keys(m))
	worths := make(map[string]worth, len(m))
	for name, f := range m {
		worths[name] = f.worth()
	}
	slices.SortFunc(names, func(a, b string) int { return worths[a].compare(worths[b]) })
	for _, name := range names {
		if f := m[name]; f.expel() {
			t.forget(m, name)
			t.part(f)
			return
		}
	}
}

// part remembers a function that made room for the next Usage, if need be.
func (t *Table) part(f *Function) {
	if !f.owes() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.parted = append(t.parted, f)
}

// Hold counts one more request on i, with which the controller has just answered
// for h, whatever the view says: for instances that are in no view (oneshots),
// and while views must not be used.
func (t *Table) Hold(h *header.Function, i *Instance) Lease {
	for {
		if l, ok := t.holder(h).hold(i); ok {
			return l
		}
		runtime.Gosched() // the function is being evicted at this moment
	}
}

// holder is the function that h names. Of a oneshot, each request brings its own
// configuration, and is told of here first.
func (t *Table) holder(h *header.Function) *Function {
	if h.Key.Oneshot {
		return t.Function(h)
	}
	return t.Again(h)
}

// find returns the function with a resource name, nil where there is none.
func (t *Table) find(name string) *Function {
	return (*t.shards[header.HashName(name)%shardCount].view.Load())[name]
}

// Push takes a function's instances from xDS; for functions that are not in the
// table nothing happens. Once it returns, no request is sent to what the push
// left out without being counted, so the push may be acknowledged.
func (t *Table) Push(fi *skipperpb.FunctionInstances, now time.Time) {
	f := t.find(fi.GetName())
	if f != nil && f.push(fi, now) && t.opts.Woken != nil {
		t.opts.Woken(fi.GetName())
	}
}

// KeepLost keeps the count of a lease raised until the given time: the end of
// its stream was not seen, so the request may well be in progress.
func (t *Table) KeepLost(l Lease, until time.Time) {
	if l.Instance == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost = append(t.lost, lost{l, until})
}

// Sweep does what falls due: it judges staleness, drops what no push confirmed,
// ends lost leases and evicts idle functions. inStep says whether the table is in
// step with a controller at this moment. Call it about once a second.
func (t *Table) Sweep(now time.Time, inStep bool) {
	confirmable := t.judge(now, inStep)
	for i := range t.shards {
		t.sweepShard(&t.shards[i], now, confirmable)
	}
}

// judge updates what is known of the connection; it returns the time before which
// an unconfirmed instance must have been heard of to be dropped, zero for none.
func (t *Table) judge(now time.Time, inStep bool) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endLostLocked(now)
	if !inStep {
		t.connected = time.Time{}
		t.stale.Store(now.Sub(t.heard) > t.opts.Staleness)
		return time.Time{}
	}
	if t.connected.IsZero() {
		t.connected = now
	}
	if now.Sub(t.connected) < settle {
		return time.Time{}
	}
	t.heard = now
	t.stale.Store(false)
	if now.Sub(t.connected) < t.opts.Confirm {
		return time.Time{}
	}
	return now.Add(-t.opts.Confirm)
}

func (t *Table) endLostLocked(now time.Time) {
	kept := t.lost[:0]
	for _, l := range t.lost {
		if now.Before(l.until) {
			kept = append(kept, l)
			continue
		}
		l.lease.Release()
	}
	clear(t.lost[len(kept):])
	t.lost = kept
}

func (t *Table) sweepShard(s *shard, now time.Time, confirmable time.Time) {
	for name, f := range *s.view.Load() {
		if !confirmable.IsZero() {
			f.expire(confirmable)
		}
		if f.evict(now, t.opts.Idle) {
			t.remove(s, name)
		}
	}
}

func (t *Table) remove(s *shard, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := maps.Clone(*s.view.Load())
	if m[name] == nil || !m[name].Evicted() {
		return // it has left already, to make room
	}
	t.forget(m, name)
	s.view.Store(&m)
}

// forget removes an evicted function from m, a copy of its shard's functions.
func (t *Table) forget(m map[string]*Function, name string) {
	oneshot := m[name].Key.Oneshot
	delete(m, name)
	t.size.Add(-1)
	if t.opts.Subscriber != nil && !oneshot {
		t.opts.Subscriber.Unsubscribe(name)
	}
}

// Restore takes back failures that Usage gave and nobody could be told, so that
// the next Usage gives them again. Nothing happens for a function that has left
// the table.
func (t *Table) Restore(h *skipperpb.Function, failures map[string]uint32) {
	if f := t.find(xds.InstancesName(fn.KeyOf(h))); f != nil {
		f.restore(failures)
	}
}

// Usage lists what every function is used for at this moment; one that made room
// since it was last said to have requests in progress is listed once more, with
// none. Failures are given once: whoever cannot report them calls Restore.
func (t *Table) Usage(now time.Time) []Usage {
	out := t.partings()
	for i := range t.shards {
		for _, f := range *t.shards[i].view.Load() {
			out = append(out, f.usage(now))
		}
	}
	return out
}

// partings are the last words on functions that made room, and have not come back.
func (t *Table) partings() []Usage {
	t.mu.Lock()
	parted := t.parted
	t.parted = nil
	t.mu.Unlock()
	var out []Usage
	said := map[string]bool{}
	for _, f := range slices.Backward(parted) {
		if h := f.config.Load(); !said[h.Name] && t.find(h.Name) == nil {
			said[h.Name] = true
			out = append(out, Usage{Function: h.Spec})
		}
	}
	return out
}

// Age is how long ago the table was last known to be in step.
func (t *Table) Age(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return now.Sub(t.heard)
}
