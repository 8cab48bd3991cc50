package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"skipper/controller/forward"
	"skipper/controller/pool"
	"skipper/controller/ring"
	"skipper/controller/supervise"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
)

// peers are a replica's way to the others.
type peers struct{ r *replica }

func (p peers) Members() []string {
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.r.joined), func(ip string) bool { return ip == p.r.ip })
}

func (p peers) Call(ctx context.Context, ip string, do func(context.Context, skipperpb.ReplicaServiceClient) error) error {
	return do(ctx, peerCall{from: p.r, ip: ip})
}

// cut says that two replicas do not reach each other now.
func (w *world) cutLocked(a, b string) bool {
	if a > b {
		a, b = b, a
	}
	return time.Now().Before(w.links[[2]string{a, b}])
}

// reach is the replica with the IP, if the caller reaches it after a while.
func (r *replica) reach(ctx context.Context, ip string) (*replica, bool) {
	w := r.w
	w.mu.Lock()
	luck := w.luckLocked("peer", r.ip+ip)
	lost := w.cutLocked(r.ip, ip) || luck>>32%100 == 0 && !w.calm
	w.mu.Unlock()
	if lost {
		r.rest(ctx, time.Second)
		return nil, false
	}
	if !r.rest(ctx, between(luck, time.Millisecond, 50*time.Millisecond)) {
		return nil, false
	}
	return w.replicaAt(ip)
}

func (w *world) replicaAt(ip string) (*replica, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.oracle.replicas[ip]
	return r, r != nil && r.life.Err() == nil
}

var errUnreachable = status.Error(codes.Unavailable, "replica cannot be reached")

// peerCall is a client of one other replica.
type peerCall struct {
	skipperpb.ReplicaServiceClient

	from *replica
	ip   string
}

func (c peerCall) ShareLoad(ctx context.Context, m *skipperpb.ShareLoadRequest, _ ...grpc.CallOption) (*skipperpb.ShareLoadResponse, error) {
	to, ok := c.from.reach(ctx, c.ip)
	if !ok {
		return nil, errUnreachable
	}
	return &skipperpb.ShareLoadResponse{}, to.loads.Hear(m, time.Now())
}

func (c peerCall) ShareProgress(ctx context.Context, m *skipperpb.ShareProgressRequest, _ ...grpc.CallOption) (*skipperpb.ShareProgressResponse, error) {
	to, ok := c.from.reach(ctx, c.ip)
	if !ok {
		return nil, errUnreachable
	}
	answer := to.tracker.Hear(m)
	if _, ok = c.from.reach(ctx, c.ip); !ok {
		return nil, errUnreachable
	}
	return answer, nil
}

// forwarder takes calls to the responsible replica, by the decisions of package
// forward.
type forwarder struct{ r *replica }

// forwardedKey marks a call that another replica has sent on.
type forwardedKey struct{}

func (f forwarder) GetInstance(ctx context.Context, q *skipperpb.GetInstanceRequest) (*skipperpb.GetInstanceResponse, bool, error) {
	lost := map[string]bool{}
	for {
		to := forward.Decide(forward.Question{
			Ring: f.r.ring.Current(), Self: f.r.ip, Hash: fn.KeyOf(q.GetFunction()).Hash(),
			Forwarded: ctx.Value(forwardedKey{}) != nil, Serving: f.r.serving(), Down: func(ip string) bool { return lost[ip] },
		})
		switch {
		case to.Local:
			return nil, false, nil
		case to.IP == "":
			return nil, false, fmt.Errorf("route call (%s): %w", to.Reason, ring.ErrEmpty)
		}
		other, ok := f.r.reach(ctx, to.IP)
		if !ok {
			lost[to.IP] = true
			continue
		}
		answer, err := other.getInstance(context.WithValue(ctx, forwardedKey{}, f.r.ip), q)
		if status.Code(err) != codes.Unavailable || ctx.Err() != nil {
			return answer, true, err
		}
		lost[to.IP] = true
	}
}

func (f forwarder) Scale(context.Context, *skipperpb.ScaleRequest) (*skipperpb.ScaleResponse, bool, error) {
	return nil, false, errors.New("nobody calls it")
}

// Heartbeat is what farewells of cmd/controller do, and then the sending on.
func (f forwarder) Heartbeat(q *skipperpb.HeartbeatRequest) {
	switch {
	case q.GetRouterId() == "":
	case q.GetGoodbye():
		f.r.loads.Goodbye(q.GetEnvoyNodeId(), time.Now())
		f.r.tracker.Goodbye(q.GetRouterId())
		f.r.w.endLease(xds.ExtprocNode(q.GetRouterId()))
	case !f.r.beats.Departed(q.GetRouterId()):
		f.r.loads.Served(q.GetEnvoyNodeId())
		for _, node := range f.r.tracker.Serves(q) {
			f.r.w.endLease(node)
		}
	}
	targets, next := forward.Spread(f.r.ring.Current().Members(), f.r.ip, q.GetForwardedFor())
	on := &skipperpb.HeartbeatRequest{
		RouterIp: q.GetRouterIp(), RouterId: q.GetRouterId(), EnvoyNodeId: q.GetEnvoyNodeId(),
		Goodbye: q.GetGoodbye(), Heartbeats: q.GetHeartbeats(), ForwardedFor: next,
	}
	for _, ip := range targets {
		f.send(ip, on)
	}
}

func (f forwarder) send(ip string, on *skipperpb.HeartbeatRequest) {
	w := f.r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	luck := w.luckLocked("beat", f.r.ip+ip)
	if w.cutLocked(f.r.ip, ip) || luck>>32%100 == 0 && !w.calm {
		return
	}
	w.afterLocked(between(luck, time.Millisecond, 200*time.Millisecond), func() {
		if to, ok := w.replicaAt(ip); ok {
			to.heartbeat(on)
		}
	})
}

// heartbeat is the call of that name.
func (r *replica) heartbeat(q *skipperpb.HeartbeatRequest) {
	_, _ = r.server.Heartbeat(r.life, q)
}

// getInstance is the call of that name; it is cut off when the replica dies.
func (r *replica) getInstance(ctx context.Context, q *skipperpb.GetInstanceRequest) (*skipperpb.GetInstanceResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.life, cancel)()
	answer, err := r.server.GetInstance(ctx, q)
	if r.life.Err() != nil {
		return nil, errUnreachable
	}
	return answer, err
}

// hearing notes what a replica's supervisors are told, in the order in which they
// are.
type hearing struct {
	*supervise.Supervisors

	r *replica
}

func (h hearing) Touch(f *skipperpb.Function) {
	h.r.telling.Lock()
	defer h.r.telling.Unlock()
	h.note(f)
	h.Supervisors.Touch(f)
}

func (h hearing) Heard(f *skipperpb.Function) {
	h.r.telling.Lock()
	defer h.r.telling.Unlock()
	h.note(f)
	h.Supervisors.Heard(f)
}

// Observe is told what the view shows: an instance may be the first word too.
func (h hearing) Observe(e pool.Event) {
	h.r.telling.Lock()
	defer h.r.telling.Unlock()
	h.begin(e.Pod().Key)
	h.Supervisors.Observe(e)
}

func (h hearing) note(f *skipperpb.Function) {
	h.r.w.spoken(h.r, f, h.begin(fn.KeyOf(f)))
}

// begin forgets what was said of a function that the supervisors have forgotten:
// whoever speaks of it first then decides how it is configured. It returns how
// that is; nil: nobody has.
func (h hearing) begin(k fn.Key) *skipperpb.Function {
	all := h.Functions()
	i := slices.IndexFunc(all, func(known *skipperpb.Function) bool { return known != nil && fn.KeyOf(known) == k })
	if i < 0 {
		h.r.w.unspoken(h.r, k)
		return nil
	}
	return all[i]
}
