package forward

import (
	"maps"
	"math"
	"slices"
	"sync"

	"google.golang.org/protobuf/types/known/timestamppb"

	"skipper/controller/heartbeat"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// Bounds of an outbox: what the largest supported cluster has (design section
// 6), a few seconds' worth. Messages share their parts with the heartbeat
// store, so a full outbox is little more than pointers.
const (
	maxRouters    = 1_024
	maxHeartbeats = 200_000
	maxPerMessage = 20_000
)

// outbox is what waits to be sent to a peer: one message for each router. A
// slow peer gets fewer and newer ones. Safe for concurrent use.
type outbox struct {
	ready chan struct{} // holds a token while something may wait

	mu sync.Mutex
	// The fields below are guarded by mu.
	order   []string // router ids, the longest waiting first
	waiting map[string]*skipperpb.HeartbeatRequest
	size    int // heartbeats in all
	sending bool
	asked   []chan struct{} // closed once nothing waits or is being sent
}

func newOutbox() *outbox {
	return &outbox{ready: make(chan struct{}, 1), waiting: map[string]*skipperpb.HeartbeatRequest{}}
}

// put adds a message, joined with one of the same router that still waits.
// What has waited longest is dropped where there is too much.
func (o *outbox) put(r *skipperpb.HeartbeatRequest) (joined bool, dropped int) {
	id := heartbeat.RouterID(r)
	o.mu.Lock()
	defer o.mu.Unlock()
	old, joined := o.waiting[id]
	if joined {
		o.size -= len(old.GetHeartbeats())
		r = Merge(old, r)
	} else {
		o.order = append(o.order, id)
	}
	o.waiting[id] = r
	o.size += len(r.GetHeartbeats())
	for len(o.order) > 1 && (len(o.order) > maxRouters || o.size > maxHeartbeats) {
		o.popLocked()
		dropped++
	}
	select {
	case o.ready <- struct{}{}:
	default: // told already
	}
	return joined, dropped
}

// take removes the message that has waited longest; nil if none waits. It counts
// as being sent until delivered is called.
func (o *outbox) take() *skipperpb.HeartbeatRequest {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.order) == 0 {
		return nil
	}
	o.sending = true
	return o.popLocked()
}

// delivered says that the sending of the message that was taken has ended.
func (o *outbox) delivered() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sending = false
	o.tellLocked()
}

// emptied is closed as soon as nothing waits and nothing is being sent.
func (o *outbox) emptied() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := make(chan struct{})
	o.asked = append(o.asked, c)
	o.tellLocked()
	return c
}

func (o *outbox) tellLocked() {
	if o.sending || len(o.order) > 0 {
		return
	}
	for _, c := range o.asked {
		close(c)
	}
	o.asked = nil
}

func (o *outbox) popLocked() *skipperpb.HeartbeatRequest {
	id := o.order[0]
	o.order = slices.Delete(o.order, 0, 1)
	r := o.waiting[id]
	delete(o.waiting, id)
	o.size -= len(r.GetHeartbeats())
	return r
}

// Merge joins two messages of one router, the later one last, into one that
// says what both said: of each function the newest heartbeat, and the failures
// of both, which each tell of a time of their own. A goodbye stands alone: with a router_id, which is new at each start, as the last word, so that
// what was under way beside it is left out; without one, whatever comes after it
// stands alone. The messages are not changed; the result shares their parts.
func Merge(earlier, later *skipperpb.HeartbeatRequest) *skipperpb.HeartbeatRequest {
	switch {
	case earlier.GetGoodbye() && earlier.GetRouterId() != "":
		return earlier
	case earlier.GetGoodbye(), later.GetGoodbye():
		return later
	}
	at := make(map[fn.Key]int, len(later.GetHeartbeats()))
	all := slices.Clone(later.GetHeartbeats())
	for i, h := range all {
		at[fn.KeyOf(h.GetFunction())] = i
	}
	for _, h := range earlier.GetHeartbeats() {
		i, known := at[fn.KeyOf(h.GetFunction())]
		switch {
		case known:
			all[i] = mergeOne(h, all[i])
		case len(all) < maxPerMessage:
			all = append(all, h)
		}
	}
	return &skipperpb.HeartbeatRequest{
		RouterIp: later.GetRouterIp(), RouterId: later.GetRouterId(), EnvoyNodeId: later.GetEnvoyNodeId(), RunningFor: later.GetRunningFor(),
		ForwardedFor: later.GetForwardedFor(), Heartbeats: all,
	}
}

// mergeOne joins what two messages say of one function; of equally new
// heartbeats the later one counts.
func mergeOne(earlier, later *skipperpb.Heartbeat) *skipperpb.Heartbeat {
	newest, other := later, earlier
	if after(earlier.GetTimestamp(), later.GetTimestamp()) {
		newest, other = earlier, later
	}
	if len(other.GetFailuresByInstance()) == 0 {
		return newest
	}
	return &skipperpb.Heartbeat{
		Function: newest.GetFunction(), Timestamp: newest.GetTimestamp(), InFlightRequests: newest.GetInFlightRequests(),
		InFlightByInstance: newest.GetInFlightByInstance(), FailuresByInstance: sum(newest.GetFailuresByInstance(), other.GetFailuresByInstance()),
	}
}

// maxFailing bounds the pods of one function whose failures wait to be sent.
const maxFailing = 1_000

// sum adds up counts by pod, up to the largest number that there is; pods beyond
// maxFailing that only b names are left out.
func sum(a, b map[string]uint32) map[string]uint32 {
	out := maps.Clone(a)
	if out == nil {
		out = make(map[string]uint32, len(b))
	}
	for _, uid := range slices.Sorted(maps.Keys(b)) {
		if _, known := out[uid]; known || len(out) < maxFailing {
			out[uid] = uint32(min(uint64(out[uid])+uint64(b[uid]), math.MaxUint32)) //nolint:gosec // bounded beside
		}
	}
	return out
}

func after(a, b *timestamppb.Timestamp) bool { return a.AsTime().After(b.AsTime()) }
