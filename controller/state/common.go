package state

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// addCommon adds what every replica knows, as this one sees it.
func (g *Gatherer) addCommon(s *skipperpb.ClusterState, q *skipperpb.GetClusterStateRequest, now time.Time) {
	s.PodIp, s.StartedAt, s.ObservedAt = g.src.Self, timestamppb.New(g.src.StartedAt), timestamppb.New(now)
	s.ControllerIps, s.Config = g.src.Ring.Current().Members(), g.src.Settings
	g.addPools(s, q)
	g.addRouters(s, now)
	g.addEnvoys(s, now)
	if !q.GetWithoutSupervisors() {
		g.addMissing(s, q, now)
	}
}

// addPools adds the stock of pools to who waits at them.
func (g *Gatherer) addPools(s *skipperpb.ClusterState, q *skipperpb.GetClusterStateRequest) {
	known := map[pool.Name]*skipperpb.PoolState{}
	for _, p := range s.GetPools() {
		known[pool.Name{Namespace: p.GetNamespace(), Deployment: p.GetDeployment()}] = p
	}
	assigned, problems := g.assigned(), g.src.PoolProblems()
	for _, name := range append(g.src.Pods.Pools(), slices.Collect(maps.Keys(known))...) {
		if !asksPool(q, name.Namespace, name.Deployment) {
			continue
		}
		p := known[name]
		if p == nil {
			p = &skipperpb.PoolState{Namespace: name.Namespace, Deployment: name.Deployment}
			known[name] = p
			s.Pools = append(s.Pools, p)
		}
		ready, unready, why := stock(g.src.Pods, name)
		p.ReadyPods, p.UnreadyPods, p.UnreadyReason = count(ready), count(unready), why
		p.AssignedPods, p.Problem = count(assigned[name]), problems[name]
		p.ActiveReplicaSet = activeReplicaSet(g.src.Pods, name.Namespace, name.Deployment)
	}
}

// assigned counts the instances of each pool.
func (g *Gatherer) assigned() map[pool.Name]int {
	out := map[pool.Name]int{}
	for _, status := range g.src.Supervisors.Statuses() {
		out[poolOf(status.Key)] += len(g.src.Pods.Instances(status.Key))
	}
	return out
}

func poolOf(k fn.Key) pool.Name { return pool.Name{Namespace: k.Namespace, Deployment: k.Deployment} }

// addRouters adds what heartbeats say of routers.
func (g *Gatherer) addRouters(s *skipperpb.ClusterState, now time.Time) {
	known := map[string]*skipperpb.ExtprocState{}
	for _, e := range s.GetExtprocs() {
		known[e.GetRouterId()] = e
	}
	for _, r := range g.src.Heartbeats.RouterList(now) {
		e := known[r.ID]
		if e == nil {
			e = &skipperpb.ExtprocState{RouterId: r.ID}
			s.Extprocs = append(s.Extprocs, e)
		}
		e.RouterIp, e.EnvoyNodeId, e.Functions = r.IP, r.Node, count(r.Functions)
		e.HeartbeatAge = durationpb.New(max(now.Sub(r.Heard), 0))
		if r.ID == r.IP {
			e.RouterId = ""
		}
	}
}

// addEnvoys adds the load reports that this replica was told of by those that
// did not answer, and what is wrong with Envoys.
func (g *Gatherer) addEnvoys(s *skipperpb.ClusterState, now time.Time) {
	known := map[string]*skipperpb.EnvoyState{}
	for _, e := range s.GetEnvoys() {
		known[e.GetNodeId()] = e
	}
	for _, one := range g.src.Loads.Envoys(now) {
		e := known[one.Node]
		if e == nil {
			e = &skipperpb.EnvoyState{NodeId: one.Node}
			known[one.Node] = e
			s.Envoys = append(s.Envoys, e)
		}
		if e.GetLoadReportAge() == nil {
			e.LoadReportAge, e.InFlightRequests = durationpb.New(max(now.Sub(one.Received), 0)), one.InFlight
		}
	}
	for node, problem := range g.src.EnvoyProblems() {
		if e := known[node]; e != nil {
			e.Problem = problem
		}
	}
}
