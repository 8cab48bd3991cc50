// Package pick chooses the instance for a request: of two that are drawn at
// random, the one with fewer requests in progress. Where the zone of this process
// is known, two are drawn from the instances there, and one of those takes the
// request unless it is far busier than one that is drawn from all.
package pick

import (
	"slices"
	"time"

	"skipper/extproc/table"
)

// tries bounds how often a choice is made again because the instance left in the
// meantime; each try sees a newer view, so the second one nearly always holds.
const tries = 8

// Want is what a request asks of an instance. The zero value takes any.
type Want struct {
	// Limit is how many of the newest instances take part while one of them
	// will do; 0 means all.
	Limit uint32
	// Not are the UIDs of instances that are never taken.
	Not []string
	// Now tells which instances are in quarantine: they are taken only where
	// there is no other.
	Now time.Time
}

// Acquire picks an instance of f and counts the request on it. random supplies
// random numbers. The answer is false if there is no instance to be had.
func Acquire(f *table.Function, w Want, random func() uint64) (table.Lease, bool) {
	for range tries {
		v := f.View()
		i := w.first(v, random)
		if i != nil && !w.likes(i) {
			i = w.another(v.Instances, random)
		}
		if i == nil {
			return table.Lease{}, false
		}
		if l, ok := f.Acquire(v, i); ok {
			return l, true
		}
	}
	return table.Lease{}, false
}

// first chooses without regard to what is held against instances. While there
// are more of them than Limit, the zone does not count: the newest take part,
// wherever they are.
func (w *Want) first(v *table.View, random func() uint64) *table.Instance {
	from := newest(v.Instances, w.Limit)
	wherever := choose(from, random)
	if len(v.Near) == 0 || len(from) < len(v.Instances) {
		return wherever
	}
	near := choose(v.Near, random)
	if overloaded(near.InFlight(), wherever.InFlight()) {
		return wherever
	}
	return near
}

// What an instance nearby may have in progress before one elsewhere is preferred:
// some requests, which cost less than the way, and beyond those a multiple.
const (
	someMore = 4
	farMore  = 2
)

// overloaded says that an instance nearby has too much in progress, against one
// from anywhere, to be preferred for its being near.
func overloaded(near, elsewhere int64) bool { return near > someMore+farMore*elsewhere }

func (w *Want) likes(i *table.Instance) bool { return w.takes(i) && !i.Quarantined(w.Now) }

func (w *Want) takes(i *table.Instance) bool { return !slices.Contains(w.Not, i.UID) }

// another chooses where the first choice was not liked: rather an old instance
// than one in quarantine, and rather that than none.
func (w *Want) another(all []*table.Instance, random func() uint64) *table.Instance {
	for _, ok := range []func(*table.Instance) bool{w.likes, w.takes} {
		for _, from := range [][]*table.Instance{newest(all, w.Limit), all} {
			if i := choose(only(from, ok), random); i != nil {
				return i
			}
		}
	}
	return nil
}

func only(all []*table.Instance, ok func(*table.Instance) bool) []*table.Instance {
	var out []*table.Instance
	for _, i := range all {
		if ok(i) {
			out = append(out, i)
		}
	}
	return out
}

// newest cuts a list that is sorted by age, the newest first.
func newest(all []*table.Instance, limit uint32) []*table.Instance {
	if limit > 0 && len(all) > int(limit) {
		return all[:limit]
	}
	return all
}

// choose draws two different instances, each pair being equally likely, and
// returns the less loaded one; nil for an empty list.
func choose(from []*table.Instance, random func() uint64) *table.Instance {
	n := uint64(len(from))
	switch n {
	case 0:
		return nil
	case 1:
		return from[0]
	}
	r := random()
	a := (r >> 32) * n >> 32
	b := (r & 0xffffffff) * (n - 1) >> 32
	if b >= a {
		b++
	}
	if from[b].InFlight() < from[a].InFlight() {
		return from[b]
	}
	return from[a]
}
