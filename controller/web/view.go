package web

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	skipperpb "skipper/proto"
)

// The shapes of the API. Times are RFC 3339, empty where there is none; ages are
// seconds, null where nothing is known.
type (
	cluster struct {
		ObservedAt  string       `json:"observed_at"`
		ObservedBy  string       `json:"observed_by"`
		Partial     bool         `json:"partial"`
		Controllers []controller `json:"controllers"`
		Pools       []pool       `json:"pools"`
		Envoys      []envoy      `json:"envoys"`
		Extprocs    []extproc    `json:"extprocs"`
		Functions   []function   `json:"functions"`
		// FunctionsTotal counts those that match, of which Functions are the first.
		FunctionsTotal int     `json:"functions_total"`
		Events         []event `json:"events"`
	}
	controller struct {
		IP          string   `json:"ip"`
		Unreachable string   `json:"unreachable"`
		StartedAt   string   `json:"started_at"`
		Version     string   `json:"version"`
		Synced      bool     `json:"synced"`
		Ring        []string `json:"ring"`
		ViewAge     *float64 `json:"view_age"`
		Held        string   `json:"held"`
	}
	pool struct {
		Namespace     string `json:"namespace"`
		Deployment    string `json:"deployment"`
		Ready         uint32 `json:"ready"`
		Unready       uint32 `json:"unready"`
		UnreadyReason string `json:"unready_reason"`
		Waiting       uint32 `json:"waiting"`
		Assigned      uint32 `json:"assigned"`
		ReplicaSet    string `json:"replica_set"`
		Problem       string `json:"problem"`
	}
	envoy struct {
		Node          string         `json:"node"`
		Subscriptions []subscription `json:"subscriptions"`
		ReportAge     *float64       `json:"report_age"`
		InFlight      uint64         `json:"in_flight"`
		Problem       string         `json:"problem"`
	}
	extproc struct {
		IP            string         `json:"ip"`
		Envoy         string         `json:"envoy"`
		HeartbeatAge  *float64       `json:"heartbeat_age"`
		Functions     uint32         `json:"functions"`
		Connected     bool           `json:"connected"`
		Subscriptions []subscription `json:"subscriptions"`
	}
	subscription struct {
		Type       string   `json:"type"`
		Controller string   `json:"controller"`
		AckedAt    string   `json:"acked_at"`
		Pending    uint32   `json:"pending"`
		Overdue    *float64 `json:"overdue"`
		Nacks      uint32   `json:"nacks"`
		Nack       string   `json:"nack"`
	}
	function struct {
		Namespace  string `json:"namespace"`
		Deployment string `json:"deployment"`
		Tenant     string `json:"tenant"`
		Oneshot    bool   `json:"oneshot"`
		// By state.
		Ready     int        `json:"ready"`
		Assigned  int        `json:"assigned"`
		Draining  int        `json:"draining"`
		InFlight  uint64     `json:"in_flight"`
		Owner     string     `json:"owner"`
		Decision  *decision  `json:"decision"`
		Scale     scale      `json:"scale"`
		Instances []instance `json:"instances,omitempty"`
	}
	scale struct {
		Min       uint32 `json:"min"`
		Max       uint32 `json:"max"`
		CPUMilli  uint32 `json:"cpu_milli"`
		MemoryMiB uint32 `json:"memory_mib"`
		InFlight  uint32 `json:"in_flight"`
	}
	decision struct {
		Desired   uint32 `json:"desired"`
		Unclamped uint32 `json:"unclamped"`
		Reason    string `json:"reason"`
		Message   string `json:"message"`
		At        string `json:"at"`
	}
	instance struct {
		Name       string `json:"name"`
		Addr       string `json:"addr"`
		State      string `json:"state"`
		AssignedAt string `json:"assigned_at"`
		ReadyAt    string `json:"ready_at"`
		DrainingAt string `json:"draining_at"`
		InFlight   uint32 `json:"in_flight"`
		CPUMilli   uint32 `json:"cpu_milli"`
		MemoryMiB  uint32 `json:"memory_mib"`
		ReplicaSet string `json:"replica_set"`
		Zone       string `json:"zone"`
		Problem    string `json:"problem"`
	}
	event struct {
		ID       string `json:"id"`
		At       string `json:"at"`
		Type     string `json:"type"`
		Severity string `json:"severity"`
		Function string `json:"function"`
		Instance string `json:"instance"`
		Message  string `json:"message"`
	}
)

// maxFunctions and maxEvents bound what a page is sent.
const (
	maxFunctions = 500
	maxEvents    = 200
)

// viewOf is all of a state, functions with most in progress first, and the newest
// events first; without the functions' instances unless whole.
func viewOf(s *skipperpb.ClusterState, whole bool) cluster {
	c := cluster{
		ObservedAt: when(s.GetObservedAt()), ObservedBy: s.GetPodIp(), Partial: s.GetPartial(),
		Controllers: each(s.GetReplicas(), controllerOf), Pools: each(s.GetPools(), poolOf),
		Envoys: each(s.GetEnvoys(), envoyOf), Extprocs: each(s.GetExtprocs(), extprocOf),
		Functions: each(s.GetSupervisors(), func(v *skipperpb.SupervisorState) function { return functionOf(v, whole) }),
		Events:    each(s.GetEvents(), eventOf),
	}
	slices.SortStableFunc(c.Functions, func(a, b function) int { return cmp.Compare(b.InFlight, a.InFlight) })
	slices.Reverse(c.Events)
	return c
}

// narrowed is what a page is sent of a view: functions, and their events, whose
// name contains filter, and not too many.
func (c cluster) narrowed(filter string) cluster {
	c.Functions, c.FunctionsTotal = first(c.Functions, maxFunctions, func(f function) bool {
		return matches(filter, f.Namespace+"/"+f.Deployment+"/"+f.Tenant)
	})
	c.Events, _ = first(c.Events, maxEvents, func(e event) bool { return matches(filter, e.Function) })
	return c
}

// first are the first, at most so many, of those that fit; total counts all that
// do.
func first[A any](list []A, most int, fits func(A) bool) (out []A, total int) {
	out = make([]A, 0, min(len(list), most)) // an empty list, not null, for the page
	for _, a := range list {
		if !fits(a) {
			continue
		}
		if total++; total <= most {
			out = append(out, a)
		}
	}
	return out, total
}

// matches says whether the name "namespace/deployment/tenant" contains filter.
func matches(filter, name string) bool {
	return filter == "" || strings.Contains(strings.ToLower(name), strings.ToLower(filter))
}

func each[A, B any](list []A, of func(A) B) []B {
	out := make([]B, 0, len(list)) // an empty list, not null, for the page
	for _, a := range list {
		out = append(out, of(a))
	}
	return out
}

func controllerOf(r *skipperpb.ReplicaState) controller {
	return controller{
		IP: r.GetIp(), Unreachable: r.GetUnreachableReason(), StartedAt: when(r.GetStartedAt()), Version: r.GetVersion(),
		Synced: r.GetSynced(), Ring: append([]string{}, r.GetRingMembers()...), ViewAge: seconds(r.GetViewAge()), Held: r.GetHeldReason(),
	}
}

func poolOf(p *skipperpb.PoolState) pool {
	return pool{
		Namespace: p.GetNamespace(), Deployment: p.GetDeployment(), Ready: p.GetReadyPods(), Unready: p.GetUnreadyPods(),
		UnreadyReason: p.GetUnreadyReason(), Waiting: p.GetWaitingCallers(), Assigned: p.GetAssignedPods(),
		ReplicaSet: p.GetActiveReplicaSet(), Problem: p.GetProblem(),
	}
}

func envoyOf(e *skipperpb.EnvoyState) envoy {
	return envoy{
		Node: e.GetNodeId(), Subscriptions: each(e.GetSubscriptions(), subscriptionOf),
		ReportAge: seconds(e.GetLoadReportAge()), InFlight: e.GetInFlightRequests(), Problem: e.GetProblem(),
	}
}

func extprocOf(e *skipperpb.ExtprocState) extproc {
	return extproc{
		IP: e.GetRouterIp(), Envoy: e.GetEnvoyNodeId(), HeartbeatAge: seconds(e.GetHeartbeatAge()), Functions: e.GetFunctions(),
		Connected: e.GetConnected(), Subscriptions: each(e.GetSubscriptions(), subscriptionOf),
	}
}

func subscriptionOf(s *skipperpb.SubscriptionState) subscription {
	return subscription{
		Type: s.GetType(), Controller: s.GetControllerIp(), AckedAt: when(s.GetAckedAt()), Pending: s.GetPending(),
		Overdue: seconds(s.GetOverdue()), Nacks: s.GetNacks(), Nack: s.GetNackMessage(),
	}
}

func functionOf(s *skipperpb.SupervisorState, whole bool) function {
	f, sc := s.GetFunction(), s.GetFunction().GetScale()
	out := function{
		Namespace: f.GetNamespace(), Deployment: f.GetDeployment(), Tenant: f.GetTenant(), Oneshot: f.GetOneshot(),
		InFlight: s.GetInFlightRequests(), Owner: s.GetResponsibleControllerIp(), Decision: decisionOf(s.GetDecision()),
		Scale: scale{sc.GetMinInstances(), sc.GetMaxInstances(), sc.GetTargetCpuUsageMilli(), sc.GetTargetMemoryUsageMib(), sc.GetTargetInFlightRequests()},
	}
	for _, i := range s.GetInstances() {
		switch i.GetState() {
		case skipperpb.InstanceState_INSTANCE_STATE_READY:
			out.Ready++
		case skipperpb.InstanceState_INSTANCE_STATE_ASSIGNED:
			out.Assigned++
		case skipperpb.InstanceState_INSTANCE_STATE_DRAINING, skipperpb.InstanceState_INSTANCE_STATE_TERMINATING:
			out.Draining++
		}
	}
	if whole {
		out.Instances = each(s.GetInstances(), instanceOf)
	}
	return out
}

func decisionOf(d *skipperpb.ScaleDecision) *decision {
	if d == nil {
		return nil
	}
	return &decision{
		Desired: d.GetDesiredInstances(), Unclamped: d.GetUnclampedInstances(), Message: d.GetMessage(),
		Reason: cmp.Or(skipperpb.Words(d.GetReason()), "none"), At: when(d.GetDecidedAt()),
	}
}

func instanceOf(i *skipperpb.Instance) instance {
	return instance{
		Name: i.GetName(), Addr: i.GetAddr(), State: word(i.GetState()),
		AssignedAt: when(i.GetAssignedAt()), ReadyAt: when(i.GetReadyAt()), DrainingAt: when(i.GetDrainingAt()),
		InFlight: i.GetInFlightRequests(), CPUMilli: i.GetCpuUsageMilli(), MemoryMiB: i.GetMemoryUsageMib(),
		ReplicaSet: i.GetReplicaSet(), Zone: i.GetZone(), Problem: i.GetProblem(),
	}
}

func eventOf(e *skipperpb.Event) event {
	f, name := e.GetFunction(), ""
	if f.GetNamespace() != "" {
		name = strings.Join([]string{f.GetNamespace(), f.GetDeployment(), f.GetTenant()}, "/")
	}
	return event{
		ID: e.GetControllerIp() + "#" + strconv.FormatUint(e.GetSequence(), 10), At: when(e.GetTimestamp()), Function: name, Instance: e.GetInstanceName(),
		Type: word(e.GetType()), Severity: word(e.GetSeverity()), Message: e.GetMessage(),
	}
}

// word is an enum's value as people write it.
func word(v protoreflect.Enum) string { return cmp.Or(skipperpb.Words(v), "unspecified") }

func when(t *timestamppb.Timestamp) string {
	if !t.IsValid() {
		return ""
	}
	return t.AsTime().UTC().Format(time.RFC3339Nano)
}

func seconds(d *durationpb.Duration) *float64 {
	if d == nil {
		return nil
	}
	s := d.AsDuration().Seconds()
	return &s
}
