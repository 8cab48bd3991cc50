package server

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	skipperpb "skipper/proto"
)

// gatherer puts together what is known of the cluster: *state.Gatherer.
type gatherer interface {
	ClusterState(ctx context.Context, q *skipperpb.GetClusterStateRequest) (*skipperpb.ClusterState, error)
}

// GetClusterState is the view over all replicas, from any of them.
func (s *Server) GetClusterState(ctx context.Context, q *skipperpb.GetClusterStateRequest) (*skipperpb.GetClusterStateResponse, error) {
	if s.State == nil {
		return nil, status.Error(codes.Unimplemented, "this controller does not tell the cluster's state")
	}
	known, err := s.State.ClusterState(ctx, q)
	if err != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &skipperpb.GetClusterStateResponse{ClusterState: known}, nil
}
