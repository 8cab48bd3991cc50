// Package controller is extproc's side of skipper.ControllerService: the
// connection, and what the controller's answers mean for a waiting request.
package controller

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	skipperpb "skipper/proto"
	"skipper/proto/reason"

	"skipper/extproc/header"
	"skipper/extproc/hold"
	"skipper/extproc/table"
)

// Dial prepares a connection to target; it connects on first use. Pings find out
// a controller that vanished without a word; extra, such as those of package
// replicas, may do so sooner.
func Dial(target string, creds credentials.TransportCredentials, extra ...grpc.DialOption) (*grpc.ClientConn, error) {
	opts := append([]grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultServiceConfig(skipperpb.ServiceConfig),
		grpc.WithDisableServiceConfig(),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect(), MinConnectTimeout: 2 * time.Second}),
	}, extra...)
	conn, err := grpc.NewClient(target, opts...)
	if err != nil {
		return nil, fmt.Errorf("prepare connection to controller %s: %w", target, err)
	}
	return conn, nil
}

// reconnect is quicker than gRPC's default, which waits up to two minutes: a
// cold request waits for 30 s at most.
func reconnect() backoff.Config {
	return backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second}
}

// Instances is the part of the service that a Source asks.
type Instances interface {
	GetInstance(context.Context, *skipperpb.GetInstanceRequest, ...grpc.CallOption) (*skipperpb.GetInstanceResponse, error)
}

// Observer is told the code of each GetInstance and how long it took.
type Observer interface {
	GotInstance(code codes.Code, took time.Duration)
}

// Source asks the controller for instances and enters them in the table. Safe
// for concurrent use.
type Source struct {
	Client   Instances
	Table    *table.Table
	Observer Observer
}

// Ask implements hold.Asker.
func (s *Source) Ask(ctx context.Context, f *header.Function, exclude []string) hold.Answer {
	start := time.Now()
	r, err := s.Client.GetInstance(ctx, &skipperpb.GetInstanceRequest{Function: f.Spec, ExcludeInstanceNames: exclude})
	s.Observer.GotInstance(status.Code(err), time.Since(start))
	if err != nil {
		return hold.Answer{Err: err, Final: final(status.Code(err))}
	}
	return s.take(f, r.GetInstance())
}

func (s *Source) take(f *header.Function, i *skipperpb.Instance) hold.Answer {
	if err := table.Check(i); err != nil {
		return unusable(err.Error())
	}
	entry := s.Table.Again(f)
	if !entry.Owns(i) {
		return unusable(fmt.Sprintf("instance %q is another function's", i.GetName()))
	}
	if i.GetFunction() == nil {
		i.Function = f.Spec // what a release names the function by
	}
	if known := entry.Learn(i, time.Now()); known != nil {
		return hold.Answer{Instance: known}
	}
	return hold.Answer{
		Err:     reason.Error(codes.Unavailable, reason.HoldTimeout, fmt.Sprintf("the controller answered with instance %s, which is gone", i.GetName())),
		Exclude: i.GetName(),
	}
}

func unusable(why string) hold.Answer {
	return hold.Answer{Err: reason.Error(codes.Internal, reason.Internal, "the controller answered with an unusable instance: "+why), Final: true}
}

// final reports whether asking again is pointless: the controller has decided.
// Time that ran out and replicas that are away are no decisions.
func final(c codes.Code) bool {
	switch c {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.Unknown:
		return false
	}
	return true
}
