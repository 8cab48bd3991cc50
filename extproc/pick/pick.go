// Package pick chooses the instance for a request: of two that are drawn at
// random, the one with fewer requests in progress.
package pick

import (
	"skipper/extproc/table"
)

// tries bounds how often a choice is made again because the instance left in the
// meantime; each try sees a newer view, so the second one nearly always holds.
const tries = 8

// Acquire picks an instance of f and counts the request on it. Only the newest
// limit instances take part; 0 means all. random supplies random numbers. The
// answer is false if there is no instance to be had.
func Acquire(f *table.Function, limit uint32, random func() uint64) (table.Lease, bool) {
	for range tries {
		v := f.View()
		i := choose(newest(v.Instances, limit), random)
		if i == nil {
			return table.Lease{}, false
		}
		if l, ok := f.Acquire(v, i); ok {
			return l, true
		}
	}
	return table.Lease{}, false
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
