package view

import (
	"fmt"
	"strings"
	"time"

	"skipper/cmd/skipper/internal/output"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// Scale is a function's bounds and targets; a target of 0 means that it is not
// scaled by that.
type Scale struct {
	Min          uint32 `json:"min_instances"`
	Max          uint32 `json:"max_instances"`
	CPUMilli     uint32 `json:"target_cpu_usage_milli"`
	MemoryMiB    uint32 `json:"target_memory_usage_mib"`
	InFlightEach uint32 `json:"target_in_flight_requests"`
}

// Decision is how many instances there should be, and why.
type Decision struct {
	Desired     uint32     `json:"desired_instances"`
	Recommended uint32     `json:"recommended_instances"`
	Unclamped   uint32     `json:"unclamped_instances"`
	Growing     uint32     `json:"growing_instances"`
	Reason      string     `json:"reason"`
	Message     string     `json:"message"`
	At          *time.Time `json:"decided_at"`
}

// Router is what one router says of the function.
type Router struct {
	IP       string     `json:"router_ip"`
	InFlight uint32     `json:"in_flight_requests"`
	HeardAt  *time.Time `json:"timestamp"`
}

// Function is one that has a supervisor: with instances, or in use.
type Function struct {
	// Name as ParseFunction reads it.
	Name       string `json:"name"`
	Namespace  string `json:"namespace"`
	Deployment string `json:"deployment"`
	Tenant     string `json:"tenant"`
	Oneshot    bool   `json:"oneshot"`
	Metadata   string `json:"metadata"`
	Scale      Scale  `json:"scale"`
	// Total counts all instances; Ready and Draining some of them.
	Total    int `json:"instances"`
	Ready    int `json:"ready_instances"`
	Draining int `json:"draining_instances"`
	// Decision is nil where none was made or the controller does not say.
	Decision *Decision `json:"decision"`
	InFlight uint64    `json:"in_flight_requests"`
	// HeardAt is the newest heartbeat's time; nil: there is none.
	HeardAt          *time.Time `json:"heard_at"`
	Responsible      string     `json:"responsible_controller_ip"`
	ReportedBy       string     `json:"reported_by"`
	ActiveReplicaSet string     `json:"active_replica_set"`
	Routers          []Router   `json:"routers"`
}

func functionOf(v *skipperpb.SupervisorState) Function {
	f := v.GetFunction()
	s := f.GetScale()
	out := Function{
		Name: fn.KeyOf(f).String(), Namespace: f.GetNamespace(), Deployment: f.GetDeployment(), Tenant: f.GetTenant(), Oneshot: f.GetOneshot(), Metadata: f.GetMetadata(),
		Scale:    Scale{s.GetMinInstances(), s.GetMaxInstances(), s.GetTargetCpuUsageMilli(), s.GetTargetMemoryUsageMib(), s.GetTargetInFlightRequests()},
		Decision: decisionOf(v.GetDecision()), InFlight: v.GetInFlightRequests(), Routers: []Router{},
		Responsible: v.GetResponsibleControllerIp(), ReportedBy: v.GetReportedBy(), ActiveReplicaSet: v.GetActiveReplicaSet(),
	}
	for _, i := range v.GetInstances() {
		out.Total++
		switch stateOf(i) {
		case stateReady:
			out.Ready++
		case stateDraining:
			out.Draining++
		}
	}
	for _, h := range v.GetRouterHeartbeats() {
		r := Router{h.GetRouterIp(), h.GetHeartbeat().GetInFlightRequests(), at(h.GetHeartbeat().GetTimestamp())}
		out.Routers = append(out.Routers, r)
		if r.HeardAt != nil && (out.HeardAt == nil || r.HeardAt.After(*out.HeardAt)) {
			out.HeardAt = r.HeardAt
		}
	}
	return out
}

func decisionOf(d *skipperpb.ScaleDecision) *Decision {
	if d == nil {
		return nil
	}
	return &Decision{
		Desired: d.GetDesiredInstances(), Recommended: d.GetRecommendedInstances(), Unclamped: d.GetUnclampedInstances(), Growing: d.GetGrowingInstances(),
		Reason: skipperpb.Word(d.GetReason()), Message: d.GetMessage(), At: at(d.GetDecidedAt()),
	}
}

// Functions lists them in the order of the state.
func Functions(s *skipperpb.ClusterState) []Function {
	out := []Function{}
	for _, v := range s.GetSupervisors() {
		out = append(out, functionOf(v))
	}
	return out
}

// FindFunction returns the state of a function; nil: it has none.
func FindFunction(s *skipperpb.ClusterState, k fn.Key) *skipperpb.SupervisorState {
	for _, v := range s.GetSupervisors() {
		if fn.KeyOf(v.GetFunction()) == k {
			return v
		}
	}
	return nil
}

func (f Function) ready() output.Cell {
	tone := output.Good
	switch {
	case f.Total == 0:
		tone = output.Plain
	case f.Ready == 0:
		tone = output.Bad
	case f.Ready+f.Draining < f.Total:
		tone = output.Warn
	}
	return output.Toned(fmt.Sprintf("%d/%d", f.Ready, f.Total), tone)
}

func (f Function) desired() (count, reason output.Cell) {
	if f.Decision == nil {
		return output.Cell{}, output.Cell{}
	}
	return output.Text(f.Decision.Desired), output.Text(f.Decision.Reason)
}

// FunctionGrid shows functions; HEARD is the age of the newest heartbeat.
func FunctionGrid(all []Function, now time.Time) output.Grid {
	g := output.Grid{Columns: []string{"FUNCTION", "READY", "DESIRED", "REASON", "IN FLIGHT", "HEARD", "CONTROLLER"}, Empty: "no functions in use"}
	for _, f := range all {
		count, reason := f.desired()
		g.Add(output.Text(f.Name), f.ready(), count, reason, output.Text(f.InFlight), output.Text(ago(f.HeardAt, now)), output.Text(f.Responsible))
	}
	return g
}

// FunctionSheet describes one, with its instances and events.
func FunctionSheet(f Function, instances []Instance, events []Event, now time.Time) output.Sheet {
	var s output.Sheet
	s.Add("Function", output.Text(f.Name))
	s.Add("Metadata", output.Text(f.Metadata))
	s.Add("Instances", f.ready())
	s.Add("Bounds", output.Text(fmt.Sprintf("%d to %d", f.Scale.Min, f.Scale.Max)))
	s.Add("Targets", output.Text(f.Scale.targets()))
	if d := f.Decision; d != nil {
		s.Add("Desired", output.Text(f.howMany()))
		s.Add("Reason", output.Text(d.Reason))
		s.Add("Why", output.Text(d.Message))
		s.Add("Decided", stamp(d.At, now))
		s.Add("Growing by", some(d.Growing))
	}
	s.Add("In flight", output.Text(f.InFlight))
	s.Add("Heard", stamp(f.HeardAt, now))
	s.Add("ReplicaSet", output.Text(f.ActiveReplicaSet))
	s.Add("Controller", output.Text(f.Responsible))
	if f.ReportedBy != f.Responsible {
		s.Add("Reported by", output.Toned(f.ReportedBy, output.Warn))
	}
	routers := output.Grid{Columns: []string{"ROUTER", "IN FLIGHT", "HEARD"}}
	for _, r := range f.Routers {
		routers.Add(output.Text(r.IP), output.Text(r.InFlight), output.Text(ago(r.HeardAt, now)))
	}
	s.Lists = []output.List{{Title: "Instances", Grid: ofOneFunction(InstanceGrid(instances, now))}, {Title: "Routers", Grid: routers}, {Title: "Events", Grid: EventGrid(events)}}
	return s
}

// howMany is the desired number with the steps that led to it: the metrics, the
// bounds, and what holds a number that is to fall. Only steps that changed the
// number are named.
func (f Function) howMany() string {
	d := f.Decision
	var steps []string
	switch {
	case f.Oneshot:
		return fmt.Sprintf("%d (oneshot: one per request)", d.Desired)
	case d.Unclamped == 0:
		steps = append(steps, "not used, so 0")
	default:
		steps = append(steps, fmt.Sprintf("the metrics ask for %d", d.Unclamped))
	}
	if d.Recommended != d.Unclamped {
		steps = append(steps, fmt.Sprintf("the bounds make it %d", d.Recommended))
	}
	if d.Desired != d.Recommended {
		steps = append(steps, fmt.Sprintf("held at %d for now", d.Desired))
	}
	return fmt.Sprintf("%d (%s)", d.Desired, strings.Join(steps, "; "))
}

func (s Scale) targets() string {
	var out []string
	for _, t := range []struct {
		n    uint32
		what string
	}{{s.InFlightEach, "requests in flight"}, {s.CPUMilli, "milli CPU"}, {s.MemoryMiB, "MiB of memory"}} {
		if t.n > 0 {
			out = append(out, fmt.Sprintf("%d %s", t.n, t.what))
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ") + ", per instance"
}

// ofOneFunction leaves out the column of functions, which are all the same one.
func ofOneFunction(g output.Grid) output.Grid {
	const function = 1
	out := output.Grid{Columns: without(g.Columns, function)}
	for _, r := range g.Rows {
		out.Rows = append(out.Rows, without(r, function))
	}
	return out
}

func without[T any](all []T, i int) []T { return append(append([]T{}, all[:i]...), all[i+1:]...) }
