package state

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	skipperpb "skipper/proto"
	"skipper/xds"
	"skipper/xds/server"
)

// part is what this replica alone knows, or knows best.
func (g *Gatherer) part(q *skipperpb.GetClusterStateRequest, now time.Time) *skipperpb.ClusterState {
	s := &skipperpb.ClusterState{Replicas: []*skipperpb.ReplicaState{g.self(now)}}
	for _, e := range g.src.Events() {
		if asksEvent(q, e) {
			s.Events = append(s.Events, e)
		}
	}
	for name, n := range g.src.Waiting() {
		if asksPool(q, name.Namespace, name.Deployment) {
			s.Pools = append(s.Pools, &skipperpb.PoolState{Namespace: name.Namespace, Deployment: name.Deployment, WaitingCallers: uint32(n)}) //nolint:gosec // callers
		}
	}
	g.addStreams(s, now)
	if !q.GetWithoutSupervisors() {
		g.addOwn(s, q, now)
	}
	return s
}

func (g *Gatherer) self(now time.Time) *skipperpb.ReplicaState {
	r := &skipperpb.ReplicaState{
		Ip: g.src.Self, StartedAt: timestamppb.New(g.src.StartedAt), Version: g.src.Version,
		Synced: g.src.Synced(), RingMembers: g.src.Ring.Current().Members(), HeldReason: g.src.Held(),
	}
	if at := g.src.FreshAt(); !at.IsZero() {
		r.ViewAge = durationpb.New(max(now.Sub(at), 0))
	}
	return r
}

// addStreams adds who is connected here.
func (g *Gatherer) addStreams(s *skipperpb.ClusterState, now time.Time) {
	for _, sub := range g.src.Subscribers() {
		state := subscription(sub, g.src.Self)
		if id, isExtproc := strings.CutPrefix(sub.Node, xds.ExtprocPrefix); isExtproc {
			s.Extprocs = append(s.Extprocs, &skipperpb.ExtprocState{RouterId: id, Connected: true, Subscriptions: []*skipperpb.SubscriptionState{state}})
		} else {
			s.Envoys = append(s.Envoys, &skipperpb.EnvoyState{NodeId: sub.Node, Subscriptions: []*skipperpb.SubscriptionState{state}})
		}
	}
	for _, e := range g.src.Loads.Envoys(now) {
		if e.Here {
			s.Envoys = append(s.Envoys, &skipperpb.EnvoyState{
				NodeId: e.Node, LoadControllerIp: g.src.Self, InFlightRequests: e.InFlight,
				LoadReportAge: durationpb.New(max(now.Sub(e.Received), 0)),
			})
		}
	}
}

func subscription(s server.Subscriber, controllerIP string) *skipperpb.SubscriptionState {
	out := &skipperpb.SubscriptionState{
		Type: s.Type, ControllerIp: controllerIP, AckedAt: timestamp(s.AckedAt), Pending: uint32(s.Pending), //nolint:gosec // bounded by MaxNames
		Nacks: uint32(s.Nacks), NackMessage: s.NackMessage, NackedAt: timestamp(s.NackedAt), //nolint:gosec // counted one by one
	}
	if s.Overdue > 0 {
		out.Overdue = durationpb.New(s.Overdue)
	}
	return out
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
