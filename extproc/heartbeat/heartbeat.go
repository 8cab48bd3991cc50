// Package heartbeat tells the controllers which functions this router uses and
// what is in progress on which pod. A function is named while it is used and for
// three intervals after, so that its last count is always zero.
//
// A router that uses none says at its start, and each interval, that it is there
// and which Envoy it serves. By that the controllers know at once that a killed
// process before it has a successor: else what that one may still have in its
// table would hold up drains and reused addresses until the table has expired.
package heartbeat

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	skipperpb "skipper/proto"
	"skipper/proto/fn"

	"skipper/extproc/table"
)

// IdleIntervals is after how many intervals without a request a function drops
// out of the batch (contract section 4).
const IdleIntervals = 3

// maxBatch bounds one message, in bytes: well below gRPC's 4 MiB.
const maxBatch = 1 << 20

// callTimeout bounds one message; the next interval says the same again.
const callTimeout = 5 * time.Second

// Client is the part of the controller's service that is called.
type Client interface {
	Heartbeat(context.Context, *skipperpb.HeartbeatRequest, ...grpc.CallOption) (*skipperpb.HeartbeatResponse, error)
}

// Router is who sends.
type Router struct {
	IP, ID, EnvoyNodeID string
	// StartedAt is when this process began; zero says nothing about it.
	StartedAt time.Time
}

// Options of Run.
type Options struct {
	Client   Client
	Table    *table.Table
	Router   Router
	Interval time.Duration
	// Beat is told the code of each message.
	Beat   func(codes.Code)
	Logger *zap.Logger
}

// Run sends heartbeats, the first one at once, until ctx ends.
func Run(ctx context.Context, o Options) error {
	tick := time.NewTicker(o.Interval)
	defer tick.Stop()
	for now := time.Now(); ; {
		for _, r := range Batches(o.Table.Usage(now), o.Router, o.Interval, now) {
			o.send(ctx, r)
		}
		select {
		case <-ctx.Done():
			return nil
		case now = <-tick.C:
		}
	}
}

// Goodbye says that this router stops: its heartbeats no longer count.
func Goodbye(ctx context.Context, o Options) {
	r := o.Router.request(time.Now())
	r.Goodbye = true
	o.send(ctx, r)
}

func (o Options) send(ctx context.Context, r *skipperpb.HeartbeatRequest) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := o.Client.Heartbeat(ctx, r)
	o.Beat(status.Code(err))
	if err == nil {
		return
	}
	for _, b := range r.GetHeartbeats() {
		o.Table.Restore(b.GetFunction(), b.GetFailuresByInstance())
	}
	level := zap.WarnLevel
	if len(r.GetHeartbeats()) == 0 && !r.GetGoodbye() {
		level = zap.DebugLevel // nothing is lost by it, and xDS says that no controller is there
	}
	if ctx.Err() == nil {
		o.Logger.Log(level, "heartbeat not delivered", zap.Int("functions", len(r.GetHeartbeats())), zap.Error(err))
	}
}

func (r Router) request(now time.Time) *skipperpb.HeartbeatRequest {
	m := &skipperpb.HeartbeatRequest{RouterIp: r.IP, RouterId: r.ID, EnvoyNodeId: r.EnvoyNodeID}
	if !r.StartedAt.IsZero() {
		m.RunningFor = durationpb.New(now.Sub(r.StartedAt))
	}
	return m
}

// Batches builds the messages of one interval, sorted by function: one without
// any if nothing is used.
func Batches(usages []table.Usage, r Router, interval time.Duration, now time.Time) []*skipperpb.HeartbeatRequest {
	beats := make([]*skipperpb.Heartbeat, 0, len(usages))
	for _, u := range usages {
		if u.Total > 0 || len(u.Failures) > 0 || u.Idle <= IdleIntervals*interval {
			beats = append(beats, &skipperpb.Heartbeat{
				Function: u.Function, Timestamp: timestamppb.New(now), InFlightRequests: u.Total,
				InFlightByInstance: u.InFlight, FailuresByInstance: u.Failures,
			})
		}
	}
	slices.SortFunc(beats, func(a, b *skipperpb.Heartbeat) int {
		return cmp.Compare(fn.KeyOf(a.GetFunction()).String(), fn.KeyOf(b.GetFunction()).String())
	})
	out, size := []*skipperpb.HeartbeatRequest{r.request(now)}, 0
	for ; len(beats) > 0; beats = beats[1:] {
		n := proto.Size(beats[0])
		if size > 0 && size+n > maxBatch {
			out = append(out, r.request(now))
			size = 0
		}
		last := out[len(out)-1]
		last.Heartbeats = append(last.Heartbeats, beats[0])
		size += n
	}
	return out
}
