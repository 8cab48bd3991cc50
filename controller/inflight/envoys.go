package inflight

import (
	"cmp"
	"slices"
	"time"
)

// Envoy is what is known of one Envoy's load reports.
type Envoy struct {
	Node string
	// Here says that it reports to this replica now.
	Here bool
	// Received is when its newest report was, by this replica's clock.
	Received time.Time
	// InFlight are its requests in progress on pods.
	InFlight uint64
}

// Envoys are those that count now, sorted by node id.
func (s *Store) Envoys(now time.Time) []Envoy {
	s.mu.RLock()
	out := make([]Envoy, 0, len(s.nodes))
	for node, w := range s.nodes {
		if !s.countsLocked(node, w, now) {
			continue
		}
		e := Envoy{Node: node, Received: w[w.newest()].received, InFlight: w.load(node).total()}
		if said, ok := w.here(); ok {
			e.Here = said.connected
		}
		out = append(out, e)
	}
	s.mu.RUnlock()
	slices.SortFunc(out, func(a, b Envoy) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// total is the number of requests in progress on all pods.
func (l Load) total() uint64 {
	uids := map[string]bool{}
	for _, w := range l.Words {
		for uid := range w {
			uids[uid] = true
		}
	}
	var n uint64
	for uid := range uids {
		n += l.On(uid)
	}
	return n
}

// Loads are those that count now, in no order, for Pod and Function. Their maps
// are shared: read only.
func (s *Store) Loads(now time.Time) []Load { return s.loads(now) }
