package view

import (
	"fmt"
	"time"

	"skipper/cmd/skipper/internal/output"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// Instance is one pod that is a function's.
type Instance struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Function as ParseFunction reads it.
	Function   string     `json:"function"`
	State      string     `json:"state"`
	Address    string     `json:"address"`
	Cluster    string     `json:"cluster"`
	ReplicaSet string     `json:"replica_set"`
	AssignedAt *time.Time `json:"assigned_at"`
	ReadyAt    *time.Time `json:"ready_at"`
	DrainingAt *time.Time `json:"draining_at"`
	// CPUMilli and MemoryMiB are 0 where nothing was measured.
	CPUMilli  uint32 `json:"cpu_usage_milli"`
	MemoryMiB uint32 `json:"memory_usage_mib"`
	InFlight  uint32 `json:"in_flight_requests"`
	// InFlightUnknown says that there may be more of them.
	InFlightUnknown bool   `json:"in_flight_unknown"`
	Problem         string `json:"problem"`
}

// The states that are told apart in colour.
const (
	stateAssigned = "assigned"
	stateReady    = "ready"
	stateDraining = "draining"
)

func instanceOf(i *skipperpb.Instance) Instance {
	return Instance{
		Namespace: i.GetFunction().GetNamespace(), Name: i.GetName(), UID: i.GetUid(), Function: fn.KeyOf(i.GetFunction()).String(),
		State: stateOf(i), Address: i.GetAddr(), Cluster: i.GetCluster(), ReplicaSet: i.GetReplicaSet(),
		AssignedAt: at(i.GetAssignedAt()), ReadyAt: at(i.GetReadyAt()), DrainingAt: at(i.GetDrainingAt()),
		CPUMilli: i.GetCpuUsageMilli(), MemoryMiB: i.GetMemoryUsageMib(),
		InFlight: i.GetInFlightRequests(), InFlightUnknown: i.GetInFlightUnknown(), Problem: i.GetProblem(),
	}
}

// stateOf reads it off the times where the controller does not say.
func stateOf(i *skipperpb.Instance) string {
	switch {
	case i.GetState() != skipperpb.InstanceState_INSTANCE_STATE_UNSPECIFIED:
		return skipperpb.Word(i.GetState())
	case i.GetDrainingAt() != nil:
		return stateDraining
	case i.GetReadyAt() != nil:
		return stateReady
	}
	return stateAssigned
}

// Instances lists those of all functions, in the order of the state.
func Instances(s *skipperpb.ClusterState) []Instance {
	out := []Instance{}
	for _, v := range s.GetSupervisors() {
		for _, i := range v.GetInstances() {
			out = append(out, instanceOf(i))
		}
	}
	return out
}

// FindInstance returns the one with the name or UID, and its message; false:
// there is none. In namespace, where that is not empty.
func FindInstance(s *skipperpb.ClusterState, namespace, name string) (Instance, *skipperpb.Instance, bool) {
	for _, v := range s.GetSupervisors() {
		for _, i := range v.GetInstances() {
			if (i.GetName() == name || i.GetUid() == name) && (namespace == "" || i.GetFunction().GetNamespace() == namespace) {
				return instanceOf(i), i, true
			}
		}
	}
	return Instance{}, nil, false
}

func (i Instance) state() output.Cell {
	tone := map[string]output.Tone{stateReady: output.Good, stateAssigned: output.Warn, stateDraining: output.Warn}
	t, known := tone[i.State]
	if !known {
		t = output.Bad
	}
	return output.Toned(i.State, t)
}

func (i Instance) inFlight() output.Cell {
	if i.InFlightUnknown {
		return output.Toned(fmt.Sprintf("%d+?", i.InFlight), output.Warn)
	}
	return output.Text(i.InFlight)
}

func (i Instance) cpu() output.Cell    { return unit(i.CPUMilli, "m") }
func (i Instance) memory() output.Cell { return unit(i.MemoryMiB, "Mi") }

func unit(n uint32, name string) output.Cell {
	if n == 0 {
		return output.Cell{}
	}
	return output.Text(fmt.Sprint(n, name))
}

// InstanceGrid shows instances; AGE is since the claim.
func InstanceGrid(all []Instance, now time.Time) output.Grid {
	g := output.Grid{Columns: []string{"NAME", "FUNCTION", "STATE", "ADDRESS", "CPU", "MEMORY", "IN FLIGHT", "AGE", "PROBLEM"}, Empty: "no instances"}
	for _, i := range all {
		g.Add(output.Text(i.Name), output.Text(i.Function), i.state(), output.Text(i.Address), i.cpu(), i.memory(), i.inFlight(), output.Text(ago(i.AssignedAt, now)), output.Toned(i.Problem, output.Bad))
	}
	return g
}

// InstanceSheet describes one, with its events.
func InstanceSheet(i Instance, events []Event, now time.Time) output.Sheet {
	var s output.Sheet
	s.Add("Name", output.Text(i.Name))
	s.Add("Namespace", output.Text(i.Namespace))
	s.Add("UID", output.Text(i.UID))
	s.Add("Function", output.Text(i.Function))
	s.Add("State", i.state())
	s.Add("Address", output.Text(i.Address))
	s.Add("Envoy cluster", output.Text(i.Cluster))
	s.Add("ReplicaSet", output.Text(i.ReplicaSet))
	s.Add("Assigned", stamp(i.AssignedAt, now))
	s.Add("Ready", stamp(i.ReadyAt, now))
	s.Add("Draining", stamp(i.DrainingAt, now))
	s.Add("CPU", i.cpu())
	s.Add("Memory", i.memory())
	s.Add("In flight", i.inFlight())
	s.Add("Problem", output.Toned(i.Problem, output.Bad))
	s.Lists = []output.List{{Title: "Events", Grid: EventGrid(events)}}
	return s
}
