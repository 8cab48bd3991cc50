package skipperpb_test

import (
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"

	skipperpb "skipper/proto"
)

// TestContractIsPinned compares every name and number that other programs rely
// on with testdata/contract.txt, which is written by hand from the contract and
// never regenerated: a difference breaks routers that are not ours.
func TestContractIsPinned(t *testing.T) {
	want, err := os.ReadFile("testdata/contract.txt")
	if err != nil {
		t.Fatal(err)
	}
	got := describe(skipperpb.File_skipper_proto, func(n protoreflect.FieldNumber) bool { return n < 20 })
	if d := cmp.Diff(strings.Split(strings.TrimSpace(string(want)), "\n"), got); d != "" {
		t.Errorf("the contract changed (-pinned +now):\n%s", d)
	}
}

// TestOwnFieldsStartAt20 keeps our additions out of the range of the contract.
func TestOwnFieldsStartAt20(t *testing.T) {
	got := describe(skipperpb.File_skipper_proto, func(n protoreflect.FieldNumber) bool { return n >= 20 })
	want := []string{
		"ClusterState.envoys = 23 skipper.EnvoyState repeated",
		"ClusterState.extprocs = 24 skipper.ExtprocState repeated",
		"ClusterState.observed_at = 25 google.protobuf.Timestamp",
		"ClusterState.partial = 21 bool",
		"ClusterState.pools = 22 skipper.PoolState repeated",
		"ClusterState.replicas = 20 skipper.ReplicaState repeated",
		"Event.controller_ip = 21 string",
		"Event.instance_name = 22 string",
		"Event.instance_uid = 23 string",
		"Event.sequence = 20 uint64",
		"GetClusterStateRequest.deployment = 21 string",
		"GetClusterStateRequest.namespace = 20 string",
		"GetClusterStateRequest.tenant = 22 string",
		"GetClusterStateRequest.without_supervisors = 23 bool",
		"Heartbeat.failures_by_instance = 21 message repeated",
		"Heartbeat.in_flight_by_instance = 20 message repeated",
		"HeartbeatRequest.envoy_node_id = 21 string",
		"HeartbeatRequest.goodbye = 22 bool",
		"HeartbeatRequest.router_id = 20 string",
		"HeartbeatRequest.running_for = 23 google.protobuf.Duration",
		"Instance.cluster = 21 string",
		"Instance.draining_at = 24 google.protobuf.Timestamp",
		"Instance.in_flight_requests = 25 uint32",
		"Instance.in_flight_unknown = 26 bool",
		"Instance.problem = 27 string",
		"Instance.state = 23 skipper.InstanceState",
		"Instance.uid = 20 string",
		"Instance.version = 22 uint64",
		"Instance.zone = 28 string",
		"SupervisorState.decision = 21 skipper.ScaleDecision",
		"SupervisorState.in_flight_requests = 22 uint64",
		"SupervisorState.reported_by = 20 string",
	}
	var fields []string
	for _, l := range got {
		if !strings.HasPrefix(l, "enum ") && !strings.HasPrefix(l, "rpc ") {
			fields = append(fields, l)
		}
	}
	if d := cmp.Diff(want, fields); d != "" {
		t.Errorf("own fields (-want +got):\n%s", d)
	}
}

// ours are messages and enums that no program but ours relies on as a whole.
func ours(name protoreflect.Name) bool {
	return slices.Contains([]protoreflect.Name{
		"FunctionInstances", "InstanceState", "ScaleDecision",
		"ReplicaState", "PoolState", "SubscriptionState", "EnvoyState", "ExtprocState",
	}, name)
}

func describe(f protoreflect.FileDescriptor, keep func(protoreflect.FieldNumber) bool) []string {
	var out []string
	for i := range f.Messages().Len() {
		if m := f.Messages().Get(i); !ours(m.Name()) {
			out = append(out, describeFields(m, keep)...)
		}
	}
	for i := range f.Enums().Len() {
		e := f.Enums().Get(i)
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			if ours(e.Name()) || v.Number() >= 20 {
				continue
			}
			out = append(out, fmt.Sprintf("enum %s.%s = %d", e.FullName(), v.Name(), v.Number()))
		}
	}
	for i := range f.Services().Len() {
		s := f.Services().Get(i)
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			out = append(out, fmt.Sprintf("rpc /%s/%s(%s) %s", s.FullName(), m.Name(), m.Input().FullName(), m.Output().FullName()))
		}
	}
	sort.Strings(out)
	return out
}

func describeFields(m protoreflect.MessageDescriptor, keep func(protoreflect.FieldNumber) bool) []string {
	var out []string
	for j := range m.Fields().Len() {
		f := m.Fields().Get(j)
		if !keep(f.Number()) {
			continue
		}
		kind := f.Kind().String()
		if f.Kind() == protoreflect.MessageKind && f.Message().FullName() != "" && !f.IsMap() {
			kind = string(f.Message().FullName())
		}
		if f.Kind() == protoreflect.EnumKind {
			kind = string(f.Enum().FullName())
		}
		line := fmt.Sprintf("%s.%s = %d %s", m.Name(), f.Name(), f.Number(), kind)
		if f.Cardinality() == protoreflect.Repeated {
			line += " repeated"
		}
		out = append(out, line)
	}
	return out
}
