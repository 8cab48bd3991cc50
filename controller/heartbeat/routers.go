package heartbeat

import (
	"cmp"
	"slices"
	"time"
)

// Router is a router with live reports.
type Router struct {
	// ID is its router_id, or its IP where it sends none.
	ID, IP string
	// Node is the node id of the Envoy that it serves; empty where it names none.
	Node string
	// Heard is when its newest message was received.
	Heard time.Time
	// Functions that it reports.
	Functions int
}

// RouterList lists the routers that have been heard within the timeout, sorted
// by ID.
func (s *Store) RouterList(now time.Time) []Router {
	s.mu.RLock()
	out := make([]Router, 0, len(s.routers))
	for id, rt := range s.routers {
		if now.Sub(rt.heard) <= s.timeout {
			out = append(out, Router{ID: id, IP: rt.ip, Node: rt.envoyNode, Heard: rt.heard, Functions: len(rt.functions)})
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(out, func(a, b Router) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
