// Package world keeps the endpoints of all pods in sharded cluster families
// and says which resources a change touches.
//
// It is plain state without lock, clock or I/O: its owner calls it from one
// goroutine at a time. A change costs what it touches, however many pods there
// are; Flush then costs the size of the touched clusters.
package world

import (
	"maps"
	"slices"
	"time"

	"skipper/xds"
	"skipper/xds/resource"
)

// Options of a World.
type Options struct {
	// Shards per family, a power of two.
	Shards int
	// Linger is how long a family stays without any pod, so that a pool whose
	// only pod is being replaced does not cost every Envoy a set of clusters.
	Linger time.Duration
}

// Diff names what Flush found changed. All slices are sorted.
type Diff struct {
	// Added and Gone are families that appeared or disappeared as a whole.
	Added, Gone []xds.Protocol
	// Touched are the shards with other endpoints than before, by family;
	// those of an added family are all there.
	Touched map[xds.Protocol][]int
}

// World is the set of endpoints. Use New.
type World struct {
	opts     Options
	pods     map[string]resource.Endpoint // by UID
	families map[xds.Protocol]*family
	added    map[xds.Protocol]bool
}

type family struct {
	shards     []map[string]string // UID to address
	touched    map[int]bool
	pods       int
	emptySince time.Time // meaningful while pods is 0
}

// New returns a world without endpoints and families.
func New(o Options) *World {
	return &World{opts: o, pods: map[string]resource.Endpoint{}, families: map[xds.Protocol]*family{}, added: map[xds.Protocol]bool{}}
}

// Remove takes pods out by UID; unknown ones are ignored.
func (w *World) Remove(now time.Time, uids ...string) {
	for _, uid := range uids {
		e, ok := w.pods[uid]
		if !ok {
			continue
		}
		delete(w.pods, uid)
		f, shard := w.families[e.Protocol], xds.ShardOf(uid, w.opts.Shards)
		delete(f.shards[shard], uid)
		f.touched[shard] = true
		if f.pods--; f.pods == 0 {
			f.emptySince = now
		}
	}
}

// Upsert adds a pod or gives it another address or protocol. The endpoint must
// be valid. An equal one touches nothing.
func (w *World) Upsert(now time.Time, e resource.Endpoint) {
	if old, ok := w.pods[e.UID]; ok {
		if old == e {
			return
		}
		w.Remove(now, e.UID)
	}
	w.pods[e.UID] = e
	f, shard := w.family(e.Protocol), xds.ShardOf(e.UID, w.opts.Shards)
	if f.shards[shard] == nil {
		f.shards[shard] = map[string]string{}
	}
	f.shards[shard][e.UID] = e.Addr
	f.touched[shard] = true
	f.pods++
}

// Announce has the family of p made, or kept for as long as one lingers without
// any pod: one is to come.
func (w *World) Announce(now time.Time, p xds.Protocol) {
	if f := w.family(p); f.pods == 0 {
		f.emptySince = now
	}
}

// family returns the family of p, and makes it, all shards touched, if need be.
func (w *World) family(p xds.Protocol) *family {
	if f, ok := w.families[p]; ok {
		return f
	}
	f := &family{shards: make([]map[string]string, w.opts.Shards), touched: map[int]bool{}}
	for i := range f.shards {
		f.touched[i] = true
	}
	w.families[p], w.added[p] = f, true
	return f
}

// Flush returns what changed since the last Flush and lets go of families that
// have been empty for the linger time. A shard that changed back is reported
// all the same.
func (w *World) Flush(now time.Time) Diff {
	d := Diff{Touched: map[xds.Protocol][]int{}}
	for p, f := range w.families {
		if f.pods == 0 && now.Sub(f.emptySince) >= w.opts.Linger {
			delete(w.families, p)
			if !w.added[p] { // else nobody has seen it
				d.Gone = append(d.Gone, p)
			}
			continue
		}
		if w.added[p] {
			d.Added = append(d.Added, p)
		}
		if len(f.touched) > 0 {
			d.Touched[p] = slices.Sorted(maps.Keys(f.touched))
			clear(f.touched)
		}
	}
	clear(w.added)
	slices.Sort(d.Added)
	slices.Sort(d.Gone)
	return d
}

// Endpoints are those of one shard, in no order.
func (w *World) Endpoints(p xds.Protocol, shard int) []resource.Endpoint {
	f := w.families[p]
	if f == nil {
		return nil
	}
	out := make([]resource.Endpoint, 0, len(f.shards[shard]))
	for uid, addr := range f.shards[shard] {
		out = append(out, resource.Endpoint{UID: uid, Addr: addr, Protocol: p})
	}
	return out
}

// Len is the number of pods.
func (w *World) Len() int { return len(w.pods) }
