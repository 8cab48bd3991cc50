package state

import (
	"math"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"skipper/controller/heartbeat"
	"skipper/controller/inflight"
	"skipper/controller/pool"
	"skipper/controller/supervise"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// addOwn adds the functions that this replica is responsible for.
func (g *Gatherer) addOwn(s *skipperpb.ClusterState, q *skipperpb.GetClusterStateRequest, now time.Time) {
	own := g.src.Ring.Current()
	loads := g.src.Loads.Loads(now)
	for _, status := range g.src.Supervisors.Statuses() {
		owner, ok := own.Owner(status.Key.Hash())
		if ok && owner == g.src.Self && asks(q, status.Function) {
			s.Supervisors = append(s.Supervisors, g.supervisor(status, owner, loads, now))
		}
	}
}

// addMissing adds the functions that nobody has reported, as this replica sees
// them.
func (g *Gatherer) addMissing(s *skipperpb.ClusterState, q *skipperpb.GetClusterStateRequest, now time.Time) {
	reported := make(map[fn.Key]bool, len(s.GetSupervisors()))
	for _, one := range s.GetSupervisors() {
		reported[fn.KeyOf(one.GetFunction())] = true
	}
	r, loads := g.src.Ring.Current(), g.src.Loads.Loads(now)
	for _, status := range g.src.Supervisors.Statuses() {
		if reported[status.Key] || !asks(q, status.Function) {
			continue
		}
		owner, _ := r.Owner(status.Key.Hash()) // empty where the ring is
		s.Supervisors = append(s.Supervisors, g.supervisor(status, owner, loads, now))
	}
}

func (g *Gatherer) supervisor(status supervise.Status, owner string, loads []inflight.Load, now time.Time) *skipperpb.SupervisorState {
	pods, beats := g.src.Pods.Instances(status.Key), g.src.Heartbeats.Reports(status.Key, now)
	s := &skipperpb.SupervisorState{
		Function: status.Function, ResponsibleControllerIp: owner, ReportedBy: g.src.Self,
		RouterHeartbeats: g.src.Heartbeats.States(status.Key, now),
		ActiveReplicaSet: activeReplicaSet(g.src.Pods, status.Key.Namespace, status.Key.Deployment),
		Decision:         decision(status.Latest),
		Instances:        make([]*skipperpb.Instance, 0, len(pods)),
	}
	uids := make([]string, 0, len(pods))
	for _, p := range pods {
		uids = append(uids, p.UID)
		s.Instances = append(s.Instances, g.instance(p, loads, beats, now))
	}
	s.InFlightRequests = inflight.Function(uids, loads, beats)
	return s
}

// instance is the pod with all that is known of it.
func (g *Gatherer) instance(p pool.Pod, loads []inflight.Load, beats []heartbeat.Report, now time.Time) *skipperpb.Instance {
	i := pool.Instance(p, g.src.Shards)
	u, _ := g.src.Usage.Of(p.Namespace, p.Name, now) // 0 where it is not known
	i.CpuUsageMilli, i.MemoryUsageMib = u.CPUMilli, u.MemoryMiB
	i.State, i.DrainingAt, i.Problem = instanceState(p.State()), timestamp(p.DrainingAt), p.Problem
	i.InFlightRequests = uint32(min(inflight.Pod(p.UID, loads, beats), math.MaxUint32)) //nolint:gosec // bounded beside
	_, known := g.src.Heartbeats.InFlightOf(p.Key, p.UID, now)
	i.InFlightUnknown = !known
	return i
}

func instanceState(s pool.State) skipperpb.InstanceState {
	switch s {
	case pool.Unassigned:
		return skipperpb.InstanceState_INSTANCE_STATE_UNASSIGNED
	case pool.Assigned:
		return skipperpb.InstanceState_INSTANCE_STATE_ASSIGNED
	case pool.Ready:
		return skipperpb.InstanceState_INSTANCE_STATE_READY
	case pool.Draining:
		return skipperpb.InstanceState_INSTANCE_STATE_DRAINING
	case pool.Terminating, pool.Dead:
		return skipperpb.InstanceState_INSTANCE_STATE_TERMINATING
	}
	return skipperpb.InstanceState_INSTANCE_STATE_UNSPECIFIED
}

func decision(l *supervise.Latest) *skipperpb.ScaleDecision {
	if l == nil {
		return nil
	}
	return &skipperpb.ScaleDecision{
		UnclampedInstances: count(l.Unclamped), RecommendedInstances: count(l.Recommended), DesiredInstances: count(l.Desired),
		Reason: l.Reason, Message: l.Why, DecidedAt: timestamppb.New(l.At), GrowingInstances: count(l.Growing),
	}
}

// count is n as a message has it.
func count(n int) uint32 {
	return uint32(min(max(n, 0), math.MaxUint32)) //nolint:gosec // bounded beside
}

// activeReplicaSet is the one that makes the pool's pods; empty: none does.
func activeReplicaSet(p pods, namespace, deployment string) string {
	if sets := p.ReplicaSets(namespace, deployment); len(sets) > 0 && sets[0].Active() {
		return sets[0].Name
	}
	return ""
}
