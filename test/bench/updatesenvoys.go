package main

import (
	"context"
	"fmt"
	"math"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// playEnvoys plays so many Envoys that take clusters and endpoints and do nothing
// with them but to acknowledge at once. It ends with ctx, or when one of them
// loses its stream.
func playEnvoys(ctx context.Context, addr, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	running, ctx := errgroup.WithContext(ctx)
	for i := range n {
		running.Go(func() error { return playEnvoy(ctx, addr, fmt.Sprintf("stand-in-%d", i)) })
	}
	return running.Wait()
}

func playEnvoy(ctx context.Context, addr, node string) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it closes once
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	for _, r := range []*discoveryv3.DeltaDiscoveryRequest{
		{Node: &corev3.Node{Id: node}, TypeUrl: resourcev3.ClusterType}, {TypeUrl: resourcev3.EndpointType},
	} {
		if err := s.Send(r); err != nil {
			return err
		}
	}
	for {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		if err := s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}); err != nil {
			return err
		}
	}
}
