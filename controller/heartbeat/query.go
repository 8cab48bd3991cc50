package heartbeat

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// Activity is what the live reports say about one function.
type Activity struct {
	Routers  int       // how many report it
	Last     time.Time // newest receipt; zero without reports
	InFlight uint64    // requests in progress, summed over routers
	// Function is the configuration reported last; nil without reports.
	Function *skipperpb.Function
}

// Activity sums the live reports of a function up.
func (s *Store) Activity(key fn.Key, now time.Time) Activity {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var a Activity
	for _, r := range s.functions[key] {
		if !s.live(r, now) {
			continue
		}
		a.Routers++
		a.InFlight += uint64(r.inFlight)
		if a.Function == nil || r.received.After(a.Last) {
			a.Last, a.Function = r.received, r.function
		}
	}
	return a
}

// Active tells whether any router reports the function.
func (s *Store) Active(key fn.Key, now time.Time) bool { return s.Activity(key, now).Routers > 0 }

// InFlight is the number of requests in progress, summed over live routers.
func (s *Store) InFlight(key fn.Key, now time.Time) uint64 { return s.Activity(key, now).InFlight }

// InFlightOf is the number of requests in progress on one pod of the function.
// It is known only if every live router accounts for its requests by instance:
// a router that knows only the contract says how many, not where.
func (s *Store) InFlightOf(key fn.Key, uid string, now time.Time) (n uint64, known bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	known = true
	for _, r := range s.functions[key] {
		if !s.live(r, now) {
			continue
		}
		n += uint64(r.instances[uid])
		known = known && accounted(r)
	}
	return n, known
}

func accounted(r report) bool {
	var sum uint64
	for _, n := range r.instances {
		sum += uint64(n)
	}
	return sum >= uint64(r.inFlight)
}

// Report is what one live router last said about a function.
type Report struct {
	// Node is the node id of the Envoy that the router serves; empty where it
	// names none.
	Node string
	// Received is when this was received, Heard when the router's newest
	// message was, which may have been about other functions.
	Received, Heard time.Time
	InFlight        uint32
	// Instances is InFlight by pod UID, as far as the router knows where its
	// requests are. Shared: read only.
	Instances map[string]uint32
}

// Reports lists the live reports of a function, in no order.
func (s *Store) Reports(key fn.Key, now time.Time) []Report {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]Report, 0, len(s.functions[key]))
	for id, r := range s.functions[key] {
		if s.live(r, now) {
			rt := s.routers[id]
			out = append(out, Report{
				Node: rt.envoyNode, Received: r.received, Heard: rt.heard, InFlight: r.inFlight, Instances: r.instances,
			})
		}
	}
	return out
}

// Named returns when a live report was received that names the pod as having a
// request in progress, the newest of them; false if none does.
func (s *Store) Named(key fn.Key, uid string, now time.Time) (at time.Time, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, r := range s.functions[key] {
		if r.instances[uid] > 0 && s.live(r, now) && r.received.After(at) {
			at, ok = r.received, true
		}
	}
	return at, ok
}

// States lists the live reports of a function for GetClusterState, sorted by
// router; the messages are the caller's but for the function and the map in
// them, which are shared and must not be changed.
func (s *Store) States(key fn.Key, now time.Time) []*skipperpb.HeartbeatState {
	s.mu.RLock()
	defer s.mu.RUnlock()
	type entry struct {
		id    string
		state *skipperpb.HeartbeatState
	}
	var entries []entry
	for id, r := range s.functions[key] {
		if !s.live(r, now) {
			continue
		}
		entries = append(entries, entry{id, &skipperpb.HeartbeatState{
			RouterIp: s.routers[id].ip,
			Heartbeat: &skipperpb.Heartbeat{
				Function: r.function, Timestamp: timestamppb.New(r.sent),
				InFlightRequests: r.inFlight, InFlightByInstance: r.instances,
			},
		}})
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.state.GetRouterIp(), b.state.GetRouterIp()), cmp.Compare(a.id, b.id))
	})
	out := make([]*skipperpb.HeartbeatState, len(entries))
	for i, e := range entries {
		out[i] = e.state
	}
	return out
}

// AnyWithoutEnvoy says that some live router names no Envoy, so that nobody but
// itself tells of its requests.
func (s *Store) AnyWithoutEnvoy(now time.Time) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, rt := range s.routers {
		if rt.envoyNode == "" && now.Sub(rt.heard) <= s.timeout {
			return true
		}
	}
	return false
}

// Departed says that the router with the router_id has said goodbye lately, so
// that what it still says counts for nothing.
func (s *Store) Departed(routerID string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, gone := s.departed[routerID]
	return gone
}

// Routers is the number of routers with reports that were not swept yet.
func (s *Store) Routers() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.routers)
}

// Knows tells whether some router has reported exactly this configuration of
// the function lately, so that it was checked before.
func (s *Store) Knows(key fn.Key, f *skipperpb.Function) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, r := range s.functions[key] {
		if proto.Equal(r.function, f) {
			return true
		}
	}
	return false
}
