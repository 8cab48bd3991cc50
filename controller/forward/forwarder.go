package forward

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"skipper/controller/ring"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// MetadataKey marks a forwarded call in its gRPC metadata; the value is the IP
// of the replica that forwarded it.
const MetadataKey = "x-skipper-forwarded-for"

// heartbeatTimeout bounds the sending of one message of heartbeats.
const heartbeatTimeout = 5 * time.Second

// Config of a Forwarder; all fields are required.
type Config struct {
	// Self is this replica's IP on the ring.
	Self string
	Ring *ring.Members
	// Peers must be told of the same members as the ring, joining ones first.
	Peers *Peers
	// Serving says whether this replica has seen enough to execute calls, and
	// is not stopping.
	Serving func() bool
	Metrics *Metrics
	Log     *zap.Logger
}

// Forwarder sends calls and heartbeats on. Safe for concurrent use.
type Forwarder struct{ cfg Config }

// New returns a Forwarder.
func New(cfg Config) *Forwarder { return &Forwarder{cfg} }

// GetInstance has the responsible replica answer. False means that the caller
// is to execute the call itself. Statuses of the other replica are returned
// as they came; without a ring member the error is ring.ErrEmpty, and it is
// ctx.Err() when ctx has ended.
func (f *Forwarder) GetInstance(ctx context.Context, r *skipperpb.GetInstanceRequest) (*skipperpb.GetInstanceResponse, bool, error) {
	return forward(ctx, f, methodGetInstance, r.GetFunction(), func(ctx context.Context, c skipperpb.ControllerServiceClient) (*skipperpb.GetInstanceResponse, error) {
		return c.GetInstance(ctx, r)
	})
}

// Scale is like GetInstance.
func (f *Forwarder) Scale(ctx context.Context, r *skipperpb.ScaleRequest) (*skipperpb.ScaleResponse, bool, error) {
	return forward(ctx, f, methodScale, r.GetFunction(), func(ctx context.Context, c skipperpb.ControllerServiceClient) (*skipperpb.ScaleResponse, error) {
		return c.Scale(ctx, r)
	})
}

type doCall[R any] func(context.Context, skipperpb.ControllerServiceClient) (*R, error)

func forward[R any](ctx context.Context, f *Forwarder, method string, function *skipperpb.Function, do doCall[R]) (*R, bool, error) {
	hash, forwarded := fn.KeyOf(function).Hash(), len(metadata.ValueFromIncomingContext(ctx, MetadataKey)) > 0
	if !forwarded {
		if _, err := f.cfg.Ring.Owner(ctx, hash); err != nil {
			return nil, false, err
		}
	}
	lost := map[string]bool{}
	for {
		to := Decide(Question{
			Ring: f.cfg.Ring.Current(), Self: f.cfg.Self, Hash: hash, Forwarded: forwarded, Serving: f.cfg.Serving(),
			Down: func(ip string) bool { return lost[ip] || f.cfg.Peers.Down(ip) },
		})
		f.cfg.Metrics.routes.WithLabelValues(method, string(to.Reason)).Inc()
		switch {
		case to.Local:
			return nil, false, nil
		case to.IP == "":
			return nil, false, fmt.Errorf("route call (%s): %w", to.Reason, ring.ErrEmpty)
		}
		answer, err := send(ctx, f, to.IP, do)
		if !unreachable(ctx, err) {
			return answer, true, err
		}
		lost[to.IP] = true
		f.cfg.Log.Warn("replica cannot be reached, its call goes to the next", zap.String("method", method),
			zap.Stringer("function", fn.KeyOf(function)), zap.String("ip", to.IP), zap.String("reason", string(to.Reason)), zap.Error(err))
	}
}

func send[R any](ctx context.Context, f *Forwarder, ip string, do doCall[R]) (answer *R, err error) {
	p := f.cfg.Peers.of(ip)
	if p == nil {
		return nil, errGone
	}
	ctx = metadata.AppendToOutgoingContext(ctx, MetadataKey, f.cfg.Self)
	err = p.call(ctx, func(ctx context.Context, c skipperpb.ControllerServiceClient) (err error) {
		answer, err = do(ctx, c)
		return err
	})
	return answer, err
}

// unreachable tells whether an error means that the peer did not answer, while
// the caller still waits.
func unreachable(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	return errors.Is(err, errDead) || errors.Is(err, errGone) || status.Code(err) == codes.Unavailable
}

// Heartbeat has a message that was received here sent on to the members that
// do not have it. It does not wait. The message must not be changed afterwards.
func (f *Forwarder) Heartbeat(r *skipperpb.HeartbeatRequest) {
	targets, next := Spread(f.cfg.Ring.Current().Members(), f.cfg.Self, r.GetForwardedFor())
	if len(targets) == 0 {
		return
	}
	on := &skipperpb.HeartbeatRequest{
		RouterIp: r.GetRouterIp(), RouterId: r.GetRouterId(), EnvoyNodeId: r.GetEnvoyNodeId(),
		Goodbye: r.GetGoodbye(), RunningFor: r.GetRunningFor(), Heartbeats: r.GetHeartbeats(), ForwardedFor: next,
	}
	for _, ip := range targets {
		p := f.cfg.Peers.of(ip)
		if p == nil {
			f.cfg.Metrics.count(failed, 1)
			continue
		}
		joined, lost := p.outbox.put(on)
		if joined {
			f.cfg.Metrics.count(merged, 1)
		}
		f.cfg.Metrics.count(dropped, lost)
	}
}

// send delivers the outbox until the peer ends. What cannot be delivered is
// lost: the router's next heartbeat says it again.
func (p *peer) send(ctx context.Context) {
	for {
		select {
		case <-p.outbox.ready:
		case <-ctx.Done():
			return
		}
		for r := p.outbox.take(); r != nil && ctx.Err() == nil; r = p.outbox.take() {
			p.deliver(ctx, r)
			p.outbox.delivered()
		}
	}
}

func (p *peer) deliver(ctx context.Context, r *skipperpb.HeartbeatRequest) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	err := p.call(ctx, func(ctx context.Context, c skipperpb.ControllerServiceClient) error {
		_, err := c.Heartbeat(ctx, r)
		return err
	})
	if err != nil {
		p.cfg.Metrics.count(failed, 1)
		p.cfg.Log.Debug("heartbeats not delivered", zap.String("ip", p.ip), zap.Error(err))
		return
	}
	p.cfg.Metrics.count(sent, 1)
}
