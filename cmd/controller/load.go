package main

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"skipper/controller/inflight"
	"skipper/controller/state"
	"skipper/controller/withdraw"
	skipperpb "skipper/proto"
	"skipper/xds"
	"skipper/xds/loads"
)

// buildLoads makes what knows of requests in progress, and takes Envoys' word.
func (p *process) buildLoads() {
	p.addresses = inflight.NewAddresses(xds.DefaultShards)
	p.loads = inflight.New(inflight.Config{
		Pods: p.view, Addresses: p.addresses, Heartbeats: p.beats,
		Expiry: p.DrainTimeout, Protected: p.protected, Registerer: p.registry, Log: p.logger,
	})
	p.lrs = loads.New(loads.Options{Sink: p.loads, Shards: xds.DefaultShards, Logger: p.logger, Registerer: p.registry})
}

// shareLoads keeps load reports understood and tells them to the other replicas.
func (p *process) shareLoads(ctx context.Context) error {
	defer p.view.Listen(p.addresses.Observe)()
	return inflight.NewSharer(p.loads, p.peers, p.PodIP).Run(ctx)
}

// replicaService answers the other replicas.
type replicaService struct {
	skipperpb.UnimplementedReplicaServiceServer
	loads    *inflight.Store
	progress *withdraw.Tracker
	state    *state.Gatherer
}

// ShareLoad takes in what another replica's Envoys have in progress. What comes
// too late for its sender comes again, and newer.
func (s replicaService) ShareLoad(ctx context.Context, r *skipperpb.ShareLoadRequest) (*skipperpb.ShareLoadResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	if err := s.loads.Hear(r, time.Now()); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "take load: %v", err)
	}
	return &skipperpb.ShareLoadResponse{}, nil
}

// ReportState tells another replica what this one knows of the cluster.
func (s replicaService) ReportState(r *skipperpb.ReportStateRequest, to grpc.ServerStreamingServer[skipperpb.ReportStateResponse]) error {
	return s.state.ReportState(r, to)
}

// holdStreams sends Envoys and extprocs to other replicas.
func (p *process) holdStreams(why string) {
	p.xds.Hold(why)
	p.lrs.Hold(why)
}

// openStreams ends holdStreams.
func (p *process) openStreams() {
	p.xds.Open()
	p.lrs.Open()
}
