package state

import (
	"cmp"
	"slices"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// merge joins the parts of replicas, each by its IP. Owner says who is
// responsible for a function: where several report it, the owner's view wins,
// and without the owner's that of the lowest IP. The parts are used up.
func merge(parts map[string]*skipperpb.ClusterState, owner func(fn.Key) string) *skipperpb.ClusterState {
	out := &skipperpb.ClusterState{}
	m := merger{
		out: out, owner: owner,
		supervisors: map[fn.Key]*skipperpb.SupervisorState{}, pools: map[pool.Name]*skipperpb.PoolState{},
		envoys: map[string]*skipperpb.EnvoyState{}, extprocs: map[string]*skipperpb.ExtprocState{},
	}
	for _, ip := range sortedIPs(parts) {
		p := parts[ip]
		out.Replicas = append(out.Replicas, p.GetReplicas()...)
		out.Events = append(out.Events, p.GetEvents()...)
		for _, s := range p.GetSupervisors() {
			m.supervisor(s)
		}
		for _, one := range p.GetPools() {
			m.pool(one)
		}
		for _, e := range p.GetEnvoys() {
			m.envoy(e)
		}
		for _, e := range p.GetExtprocs() {
			m.extproc(e)
		}
	}
	for _, s := range m.supervisors {
		out.Supervisors = append(out.Supervisors, s)
	}
	return out
}

func sortedIPs(parts map[string]*skipperpb.ClusterState) []string {
	ips := make([]string, 0, len(parts))
	for ip := range parts {
		ips = append(ips, ip)
	}
	slices.Sort(ips)
	return ips
}

// merger joins what several parts say of the same thing.
type merger struct {
	out         *skipperpb.ClusterState
	owner       func(fn.Key) string
	supervisors map[fn.Key]*skipperpb.SupervisorState
	pools       map[pool.Name]*skipperpb.PoolState
	envoys      map[string]*skipperpb.EnvoyState
	extprocs    map[string]*skipperpb.ExtprocState
}

func (m *merger) supervisor(s *skipperpb.SupervisorState) {
	key := fn.KeyOf(s.GetFunction())
	if m.supervisors[key] == nil || s.GetReportedBy() == m.owner(key) {
		m.supervisors[key] = s
	}
}

func (m *merger) pool(p *skipperpb.PoolState) {
	name := pool.Name{Namespace: p.GetNamespace(), Deployment: p.GetDeployment()}
	if known := m.pools[name]; known != nil {
		known.WaitingCallers += p.GetWaitingCallers()
		return
	}
	m.pools[name] = p
	m.out.Pools = append(m.out.Pools, p)
}

// envoy joins the streams of an Envoy; of several load reports the newest counts.
func (m *merger) envoy(e *skipperpb.EnvoyState) {
	known := m.envoys[e.GetNodeId()]
	if known == nil {
		m.envoys[e.GetNodeId()] = e
		m.out.Envoys = append(m.out.Envoys, e)
		return
	}
	known.Subscriptions = append(known.Subscriptions, e.GetSubscriptions()...)
	if age := e.GetLoadReportAge(); age != nil && (known.GetLoadReportAge() == nil || age.AsDuration() < known.GetLoadReportAge().AsDuration()) {
		known.LoadReportAge, known.LoadControllerIp, known.InFlightRequests = age, e.GetLoadControllerIp(), e.GetInFlightRequests()
	}
}

func (m *merger) extproc(e *skipperpb.ExtprocState) {
	known := m.extprocs[e.GetRouterId()]
	if known == nil {
		m.extprocs[e.GetRouterId()] = e
		m.out.Extprocs = append(m.out.Extprocs, e)
		return
	}
	known.Connected = known.GetConnected() || e.GetConnected()
	known.Subscriptions = append(known.Subscriptions, e.GetSubscriptions()...)
}

// order sorts all lists, so that equal states are equal answers.
func order(s *skipperpb.ClusterState) {
	slices.SortFunc(s.Replicas, func(a, b *skipperpb.ReplicaState) int { return cmp.Compare(a.GetIp(), b.GetIp()) })
	slices.SortFunc(s.Pools, func(a, b *skipperpb.PoolState) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetDeployment(), b.GetDeployment()))
	})
	slices.SortFunc(s.Envoys, func(a, b *skipperpb.EnvoyState) int { return cmp.Compare(a.GetNodeId(), b.GetNodeId()) })
	slices.SortFunc(s.Extprocs, func(a, b *skipperpb.ExtprocState) int {
		return cmp.Or(cmp.Compare(a.GetRouterId(), b.GetRouterId()), cmp.Compare(a.GetRouterIp(), b.GetRouterIp()))
	})
	for _, e := range s.Envoys {
		orderSubscriptions(e.GetSubscriptions())
	}
	for _, e := range s.Extprocs {
		orderSubscriptions(e.GetSubscriptions())
	}
	orderSupervisors(s.Supervisors)
	slices.SortFunc(s.Events, func(a, b *skipperpb.Event) int {
		return cmp.Or(a.GetTimestamp().AsTime().Compare(b.GetTimestamp().AsTime()),
			cmp.Compare(a.GetControllerIp(), b.GetControllerIp()), cmp.Compare(a.GetSequence(), b.GetSequence()))
	})
}

func orderSubscriptions(list []*skipperpb.SubscriptionState) {
	slices.SortStableFunc(list, func(a, b *skipperpb.SubscriptionState) int {
		return cmp.Or(cmp.Compare(a.GetControllerIp(), b.GetControllerIp()), cmp.Compare(a.GetType(), b.GetType()))
	})
}

// orderSupervisors sorts by the functions' names.
func orderSupervisors(list []*skipperpb.SupervisorState) {
	names := make(map[*skipperpb.SupervisorState]string, len(list))
	for _, s := range list {
		names[s] = fn.KeyOf(s.GetFunction()).String()
	}
	slices.SortFunc(list, func(a, b *skipperpb.SupervisorState) int { return cmp.Compare(names[a], names[b]) })
}
