// Package heartbeat remembers which routers use which functions: the newest
// report of each router for each function, until it is older than the
// heartbeat timeout.
//
// Expiry counts from receipt, because a router's clock may be wrong; a
// router's own timestamps only order its reports among themselves. Nothing is
// done here: supervisors ask.
package heartbeat

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// Limits bound what hostile routers can make the store remember; 0 means the
// value of DefaultLimits.
type Limits struct {
	Routers            int // routers with live reports
	FunctionsPerRouter int
	InstancesPerReport int // pod UIDs in one report; of more, only the sum is kept
}

// DefaultLimits leave room for the largest supported cluster (design section 6:
// 10,000 functions, 50,000 pods).
func DefaultLimits() Limits {
	return Limits{Routers: 1024, FunctionsPerRouter: 20_000, InstancesPerReport: 1_000}
}

// Store holds the newest reports. It is safe for concurrent use; all methods
// take the present time, which must not go back by more than the jitter of a
// monotonic clock.
type Store struct {
	timeout time.Duration
	limits  Limits

	mu        sync.RWMutex
	functions map[fn.Key]map[string]report // by router id
	routers   map[string]*router
	departed  map[string]time.Time // routers that said goodbye, by when
	swept     time.Time
}

// report is what one router last said about one function. Immutable.
type report struct {
	function  *skipperpb.Function // shared between routers that say the same
	sent      time.Time           // by the router's clock
	received  time.Time
	inFlight  uint32
	instances map[string]uint32 // pod UID to requests in progress
}

type router struct {
	ip        string
	envoyNode string
	heard     time.Time // receipt of its newest message, whatever it was about
	functions map[fn.Key]struct{}
}

// NewStore makes an empty store whose reports count for timeout after receipt.
func NewStore(timeout time.Duration, limits Limits) *Store {
	d := DefaultLimits()
	for _, l := range []struct{ value, fallback *int }{
		{&limits.Routers, &d.Routers},
		{&limits.FunctionsPerRouter, &d.FunctionsPerRouter},
		{&limits.InstancesPerReport, &d.InstancesPerReport},
	} {
		if *l.value == 0 {
			*l.value = *l.fallback
		}
	}
	return &Store{
		timeout: timeout, limits: limits,
		functions: map[fn.Key]map[string]report{},
		routers:   map[string]*router{},
		departed:  map[string]time.Time{},
	}
}

// Outcome counts what Record did with each heartbeat of a message.
type Outcome struct {
	Accepted int
	Outdated int // not newer than what the same router said before
	Refused  int // over a limit, or from a router that has said goodbye
}

// RouterID is the identity of the router that sent r: router_id, or router_ip
// from routers that know only the contract.
func RouterID(r *skipperpb.HeartbeatRequest) string {
	if id := r.GetRouterId(); id != "" {
		return id
	}
	return r.GetRouterIp()
}

// Record takes in a message received at now. The caller has validated the
// functions and does not change r afterwards. A heartbeat without a timestamp
// counts as sent at now. A goodbye forgets the router at once; with a router_id
// (new at each start) it also refuses its late messages.
func (s *Store) Record(r *skipperpb.HeartbeatRequest, now time.Time) Outcome {
	id := RouterID(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweepLocked(now)
	if r.GetGoodbye() {
		s.dropRouterLocked(id)
		if r.GetRouterId() != "" && len(s.departed) < s.limits.Routers {
			s.departed[id] = now
		}
		return Outcome{}
	}
	var out Outcome
	rt := s.routerLocked(id, r, now)
	for _, h := range r.GetHeartbeats() {
		s.recordLocked(id, rt, h, now, &out)
	}
	s.dropIfIdleLocked(id)
	return out
}

// routerLocked finds or makes the router; nil where it may not report.
func (s *Store) routerLocked(id string, r *skipperpb.HeartbeatRequest, now time.Time) *router {
	if _, gone := s.departed[id]; gone || id == "" {
		return nil
	}
	rt, ok := s.routers[id]
	if !ok {
		if len(s.routers) >= s.limits.Routers {
			return nil
		}
		rt = &router{functions: map[fn.Key]struct{}{}}
		s.routers[id] = rt
	}
	rt.ip, rt.envoyNode, rt.heard = r.GetRouterIp(), r.GetEnvoyNodeId(), now
	return rt
}

func (s *Store) recordLocked(id string, rt *router, h *skipperpb.Heartbeat, now time.Time, out *Outcome) {
	key := fn.KeyOf(h.GetFunction())
	if rt == nil {
		out.Refused++
		return
	}
	sent := now
	if h.GetTimestamp() != nil {
		sent = h.GetTimestamp().AsTime()
	}
	last, known := s.functions[key][id]
	switch {
	case known && s.live(last, now) && overtaken(sent, last.sent):
		out.Outdated++
		return
	case !known && len(rt.functions) >= s.limits.FunctionsPerRouter:
		out.Refused++
		return
	}
	if s.functions[key] == nil {
		s.functions[key] = make(map[string]report, 1)
	}
	s.functions[key][id] = report{
		function: s.sharedLocked(key, h.GetFunction()), sent: sent, received: now,
		inFlight: h.GetInFlightRequests(), instances: s.placed(h),
	}
	rt.functions[key] = struct{}{}
	out.Accepted++
}

// reordered is by how much a message may be older than one that came before it:
// calls and their forwarding end sooner. One that is older still tells of a
// clock that was set back, whose router would else be ignored until what it said
// before has expired, and seem gone for a moment then.
const reordered = 30 * time.Second

// overtaken says that the message was sent before the last one, or is the same.
func overtaken(sent, last time.Time) bool {
	return !sent.After(last) && last.Sub(sent) <= reordered
}

// placed is where the requests are; nil where that is too much to remember. The
// function is still in use then, and its requests are on any of its pods.
func (s *Store) placed(h *skipperpb.Heartbeat) map[string]uint32 {
	if len(h.GetInFlightByInstance()) > s.limits.InstancesPerReport {
		return nil
	}
	return h.GetInFlightByInstance()
}

// sharedLocked returns an equal function that is stored already, so that ten
// routers that say the same cost the memory of one.
func (s *Store) sharedLocked(key fn.Key, f *skipperpb.Function) *skipperpb.Function {
	for _, r := range s.functions[key] {
		if proto.Equal(r.function, f) {
			return r.function
		}
	}
	return f
}

// Forget drops all reports of a function; they count again when sent again.
func (s *Store) Forget(key fn.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.functions[key] {
		delete(s.routers[id].functions, key)
		s.dropIfIdleLocked(id)
	}
	delete(s.functions, key)
}

func (s *Store) live(r report, now time.Time) bool { return now.Sub(r.received) <= s.timeout }

// sweepLocked drops what has expired, at most every eighth of the timeout, so
// that recording costs in proportion to what is recorded.
func (s *Store) sweepLocked(now time.Time) {
	if now.Sub(s.swept) < s.timeout/8 {
		return
	}
	s.swept = now
	for key, reports := range s.functions {
		for id, r := range reports {
			if !s.live(r, now) {
				s.dropLocked(key, id)
			}
		}
	}
	for id, at := range s.departed {
		if now.Sub(at) > s.timeout {
			delete(s.departed, id)
		}
	}
}

func (s *Store) dropLocked(key fn.Key, id string) {
	delete(s.functions[key], id)
	if len(s.functions[key]) == 0 {
		delete(s.functions, key)
	}
	delete(s.routers[id].functions, key)
	s.dropIfIdleLocked(id)
}

func (s *Store) dropIfIdleLocked(id string) {
	if rt, ok := s.routers[id]; ok && len(rt.functions) == 0 {
		delete(s.routers, id)
	}
}

func (s *Store) dropRouterLocked(id string) {
	rt, ok := s.routers[id]
	if !ok {
		return
	}
	for key := range rt.functions {
		s.dropLocked(key, id)
	}
	delete(s.routers, id)
}
