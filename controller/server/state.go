package server

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// GetClusterState is what this replica knows of the whole cluster: it sees all
// pods and is told all heartbeats, whoever scales the function.
func (s *Server) GetClusterState(context.Context, *skipperpb.GetClusterStateRequest) (*skipperpb.GetClusterStateResponse, error) {
	now := time.Now()
	state := &skipperpb.ClusterState{
		PodIp:         s.opts.PodIP,
		StartedAt:     timestamppb.New(s.opts.StartedAt),
		ControllerIps: s.Ring.Current().Members(),
		Config:        s.opts.Config,
	}
	for _, f := range s.Supervisors.Functions() {
		state.Supervisors = append(state.Supervisors, s.supervisorState(f, now))
	}
	return &skipperpb.GetClusterStateResponse{ClusterState: state}, nil
}

func (s *Server) supervisorState(f *skipperpb.Function, now time.Time) *skipperpb.SupervisorState {
	key := fn.KeyOf(f)
	owner, _ := s.Ring.Current().Owner(key.Hash()) // empty where the ring is
	return &skipperpb.SupervisorState{
		Function:                f,
		Instances:               s.instances(s.Pods.Instances(key)),
		RouterHeartbeats:        s.Heartbeats.States(key, now),
		ResponsibleControllerIp: owner,
		ActiveReplicaSet:        s.activeReplicaSet(key),
	}
}

// activeReplicaSet is the one that makes the pool's pods; empty: none does.
func (s *Server) activeReplicaSet(key fn.Key) string {
	if sets := s.Pods.ReplicaSets(key.Namespace, key.Deployment); len(sets) > 0 && sets[0].Active() {
		return sets[0].Name
	}
	return ""
}
