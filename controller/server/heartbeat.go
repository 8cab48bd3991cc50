package server

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"skipper/controller/heartbeat"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// maxID bounds router_id, router_ip and envoy_node_id, in bytes.
const maxID = 253

// maxForwardedFor bounds forwarded_for; no ring is nearly as large.
const maxForwardedFor = 1000

// Heartbeat notes which functions a router uses, and tells the other replicas.
// Functions that are invalid or
// not managed are ignored and counted, so that one of them does not take the
// others along. A message without any is a sign of life, which the others hear
// of too.
func (s *Server) Heartbeat(_ context.Context, r *skipperpb.HeartbeatRequest) (*skipperpb.HeartbeatResponse, error) {
	id := heartbeat.RouterID(r)
	if id == "" || max(len(r.GetRouterId()), len(r.GetRouterIp()), len(r.GetEnvoyNodeId())) > maxID {
		return nil, status.Errorf(codes.InvalidArgument, "set router_ip or router_id, each and envoy_node_id at most %d bytes", maxID)
	}
	if n := len(r.GetForwardedFor()); n > maxForwardedFor {
		return nil, status.Errorf(codes.InvalidArgument, "forwarded_for has %d addresses, at most %d are taken", n, maxForwardedFor)
	}
	if d := r.GetRunningFor(); d != nil && (d.CheckValid() != nil || d.AsDuration() < 0) {
		return nil, status.Error(codes.InvalidArgument, "running_for is negative or no duration: leave it out, or set how long the router has been running")
	}
	valid := s.valid(r.GetHeartbeats())
	checked := &skipperpb.HeartbeatRequest{
		RouterIp: r.GetRouterIp(), RouterId: r.GetRouterId(), EnvoyNodeId: r.GetEnvoyNodeId(),
		Goodbye: r.GetGoodbye(), RunningFor: r.GetRunningFor(), Heartbeats: valid, ForwardedFor: r.GetForwardedFor(),
	}
	out := s.Heartbeats.Record(checked, time.Now())
	s.Forwarder.Heartbeat(checked)
	s.count(out, len(r.GetHeartbeats())-len(valid))
	if out.Accepted > 0 {
		for _, h := range valid {
			s.Supervisors.Heard(h.GetFunction())
		}
	}
	return &skipperpb.HeartbeatResponse{}, nil
}

func (s *Server) valid(all []*skipperpb.Heartbeat) []*skipperpb.Heartbeat {
	out := make([]*skipperpb.Heartbeat, 0, len(all))
	for _, h := range all {
		f := h.GetFunction()
		if s.namespaces[f.GetNamespace()] && (s.wellKnown(f) || s.check(f) == nil) {
			out = append(out, h)
		}
	}
	return out
}

// wellKnown spares the check for what every router says every few seconds: a
// function that is exactly as it was accepted before.
func (s *Server) wellKnown(f *skipperpb.Function) bool {
	return s.Heartbeats.Knows(fn.KeyOf(f), f)
}

func (s *Server) count(out heartbeat.Outcome, invalid int) {
	for outcome, n := range map[string]int{
		"accepted": out.Accepted, "outdated": out.Outdated, "refused": out.Refused, "invalid": invalid,
	} {
		s.heard.WithLabelValues(outcome).Add(float64(n))
	}
}
