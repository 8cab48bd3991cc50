package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"skipper/cmd/skipper/internal/finding"
	"skipper/cmd/skipper/internal/pools"
	skipperpb "skipper/proto"
)

var now = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

const both = "10.0.0.1 10.0.0.2"

func stateOf(ip, ring string) *skipperpb.ClusterState {
	return &skipperpb.ClusterState{
		PodIp: ip, ControllerIps: strings.Fields(ring), ObservedAt: timestamppb.New(now),
		Replicas: []*skipperpb.ReplicaState{
			{Ip: "10.0.0.1", Synced: true, Version: "v1", ViewAge: durationpb.New(time.Second)},
			{Ip: "10.0.0.2", Synced: true, Version: "v1"},
		},
		Envoys: []*skipperpb.EnvoyState{{
			NodeId: "envoy-1", LoadControllerIp: "10.0.0.1", LoadReportAge: durationpb.New(time.Second),
			Subscriptions: []*skipperpb.SubscriptionState{{Type: "cluster", ControllerIp: "10.0.0.1"}},
		}},
		Extprocs: []*skipperpb.ExtprocState{
			{RouterId: "r1", EnvoyNodeId: "envoy-1", Connected: true, HeartbeatAge: durationpb.New(time.Second), Subscriptions: []*skipperpb.SubscriptionState{{Type: "instances", ControllerIp: "10.0.0.1"}}},
			{RouterIp: "10.9.9.9"}, // knows the contract alone
		},
		Supervisors: []*skipperpb.SupervisorState{{Function: &skipperpb.Function{Scale: &skipperpb.Scale{MaxInstances: 1}}}},
	}
}

// healthy is a cluster in which nothing is wrong.
func healthy() Facts {
	replica := func(pod, ip string) Replica {
		return Replica{Pod: pod, IP: ip, Ready: true, State: stateOf(ip, both), Asked: now, Answered: now}
	}
	return Facts{
		Now: now, System: "skipper-system", Namespaces: []string{"prod"},
		Server:  Reading{At: now, Asked: now, Answered: now, Step: time.Second},
		Access:  []Access{{Who: "system:serviceaccount:skipper-system:skipper-controller", Namespace: "prod", Verb: "list", Resource: "pods", For: "x", Allowed: true}},
		Metrics: Metrics{Known: true, Served: true}, Pools: []pools.Pool{{Namespace: "prod", Deployment: "echo"}},
		Replicas:     []Replica{replica("controller-a", "10.0.0.1"), replica("controller-b", "10.0.0.2")},
		Leases:       []Lease{{Name: "skipper-extproc-r1", Node: "extproc/r1", Envoy: "envoy-1", Renewed: now.Add(-time.Second), Lasts: 5 * time.Minute}},
		Gateways:     []string{"envoy-1"},
		Certificates: []Certificate{{"skipper-tls-envoy", now.Add(200 * 24 * time.Hour)}},
	}
}

func TestNothingIsFoundWhereAllIsWell(t *testing.T) {
	t.Parallel()
	if found := Diagnose(healthy()); len(found) != 0 {
		t.Errorf("found %+v", found)
	}
	// Controllers of before know less, which is nothing bad.
	old := healthy()
	for i := range old.Replicas {
		old.Replicas[i].State = &skipperpb.ClusterState{PodIp: old.Replicas[i].IP, ControllerIps: strings.Fields(both)}
	}
	old.Leases = nil
	if found := Diagnose(old); len(found) != 0 {
		t.Errorf("old controllers: found %+v", found)
	}
}

// state changes what all replicas answer.
func state(change func(*skipperpb.ClusterState)) func(*Facts) {
	return func(f *Facts) {
		for i := range f.Replicas {
			change(f.Replicas[i].State)
		}
	}
}

// illness is what to change in healthy facts, and what is to be found then.
type illness struct {
	name   string
	change func(*Facts)
	want   []string // "severity check: subject: part of what", most urgent first
}

func diagnose(t *testing.T, rows []illness) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			f := healthy()
			row.change(&f)
			found := Diagnose(f)
			if len(found) != len(row.want) {
				t.Fatalf("found %+v, want %q", found, row.want)
			}
			for i, got := range found {
				text := fmt.Sprintf("%s %s: %s: %s", got.Severity, got.Check, got.Subject, got.What)
				if !strings.HasPrefix(text, row.want[i]) || got.Why == "" || got.Do == "" {
					t.Errorf("found %q (why %q, do %q), want %q", text, got.Why, got.Do, row.want[i])
				}
			}
		})
	}
}

func TestDiagnoseTheCluster(t *testing.T) {
	t.Parallel()
	diagnose(t, []illness{
		{"rights of the controllers", func(f *Facts) {
			f.Access = append(f.Access, Access{Who: "sa", Namespace: "prod", Verb: "patch", Resource: "pods", For: "claims"}, Access{Who: "sa", Namespace: "prod", Verb: "list", Group: "apps", Resource: "replicasets", For: "stale"})
		}, []string{"problem access: sa in namespace prod: may not patch pods, list replicasets.apps"}},
		{"rights of the operator", func(f *Facts) {
			f.Access = append(f.Access, Access{Who: You, Namespace: "prod", Verb: "patch", Resource: "pods"})
		}, []string{"warning access: you in namespace prod: may not patch pods"}},
		{"no metrics API, and nobody minds", func(f *Facts) { f.Metrics.Served = false }, []string{"warning metrics: metrics.k8s.io: the cluster has no metrics API; 0 functions"}},
		{"no metrics API, and a target", func(f *Facts) {
			f.Metrics.Served = false
			f.Replicas[0].State.Supervisors[0].Function.Scale.TargetCpuUsageMilli = 500
		}, []string{"problem metrics: metrics.k8s.io: the cluster has no metrics API; 1 functions"}},
		{"metrics API unknown", func(f *Facts) { f.Metrics = Metrics{} }, nil},
		{"pool with a finding", func(f *Facts) {
			f.Pools[0].Findings = []finding.Finding{{Severity: finding.Problem, Check: "pool", Subject: "deployment prod/echo", What: "own", Why: "w", Do: "d"}}
			f.Replicas[0].State.Pools = []*skipperpb.PoolState{{Namespace: "prod", Deployment: "echo", Problem: "the same in other words"}}
		}, []string{"problem pool: deployment prod/echo: own"}},
		{"pool that only controllers find wrong", func(f *Facts) {
			f.Replicas[0].State.Pools = []*skipperpb.PoolState{{Namespace: "prod", Deployment: "echo", Problem: "claims are refused"}}
		}, []string{"problem pool: deployment prod/echo: claims are refused"}},
		{"pool run dry", func(f *Facts) {
			f.Replicas[0].State.Pools = []*skipperpb.PoolState{{Namespace: "prod", Deployment: "echo", WaitingCallers: 3, UnreadyReason: "no port"}}
		}, []string{"problem pool: deployment prod/echo: 3 callers wait for a pod, and none can be claimed: no port"}},
		{"pool that waits a moment", func(f *Facts) {
			f.Replicas[0].State.Pools = []*skipperpb.PoolState{{Namespace: "prod", Deployment: "echo", WaitingCallers: 3, ReadyPods: 1}}
		}, nil},
		{"pool of nobody", func(f *Facts) { f.Pools = append(f.Pools, pools.Pool{Namespace: "dev", Deployment: "echo"}) }, []string{"warning pool: deployment dev/echo: is a pool in a namespace that no controller manages"}},
		{"certificates", func(f *Facts) {
			f.Certificates = []Certificate{{"a", now}, {"b", now.Add(13 * 24 * time.Hour)}, {"c", now.Add(15 * 24 * time.Hour)}}
		}, []string{"problem certificate: secret skipper-system/a: its certificate ended", "warning certificate: secret skipper-system/b: its certificate ends"}},
		{"gaps", func(f *Facts) { f.Gaps = []Gap{{"lease", "leases of extprocs", "forbidden"}} }, []string{"unknown lease: leases of extprocs: could not be checked: forbidden"}},
	})
}

func TestDiagnoseControllers(t *testing.T) {
	t.Parallel()
	diagnose(t, []illness{
		{"replica is silent", func(f *Facts) { f.Replicas[1].State, f.Replicas[1].Error = nil, "refused" }, []string{"problem replica: pod controller-b: is ready and does not answer: refused"}},
		{"replica starts", func(f *Facts) {
			f.Replicas[1] = Replica{Pod: "controller-b", IP: "10.0.0.2", Error: "refused"}
			f.Replicas[0].State.ControllerIps = []string{"10.0.0.1"}
		}, []string{"warning replica: pod controller-b: is not ready"}},
		{"replicas do not reach each other", func(f *Facts) { f.Replicas[0].State.Replicas[1].UnreachableReason = "timeout" }, []string{"problem replica: controller 10.0.0.2: does not answer controller 10.0.0.1: timeout"}},
		{"replica is held", func(f *Facts) { f.Replicas[0].State.Replicas[1].HeldReason = "watch is frozen" }, []string{"problem replica: controller 10.0.0.2: scales nothing and serves no xDS: watch is frozen"}},
		{"replica lags", func(f *Facts) { f.Replicas[0].State.Replicas[1].ViewAge = durationpb.New(151 * time.Second) }, []string{"problem replica: controller 10.0.0.2: its view of the cluster is 2m31s old"}},
		{"replica has not synced", func(f *Facts) { f.Replicas[0].State.Replicas[1].Synced = false }, []string{"warning replica: controller 10.0.0.2: has not seen all pods"}},
		{"two versions", func(f *Facts) { f.Replicas[0].State.Replicas[1].Version = "v2" }, []string{"warning replica: controllers: run 2 versions"}},
		{"two rings", func(f *Facts) { f.Replicas[1].State.ControllerIps = []string{"10.0.0.2"} }, []string{"problem ring: ring: controllers disagree about it: [10.0.0.1 10.0.0.2] by 10.0.0.1, [10.0.0.2] by 10.0.0.2"}},
		{"one ring in another order", func(f *Facts) { slices.Reverse(f.Replicas[1].State.ControllerIps) }, nil},
		{"ready and not on the ring", state(func(s *skipperpb.ClusterState) { s.ControllerIps = s.ControllerIps[:1] }), []string{"problem ring: pod controller-b: is ready and not on the ring"}},
		{"on the ring and gone", state(func(s *skipperpb.ClusterState) { s.ControllerIps = append(s.ControllerIps, "10.0.0.3") }), []string{"problem ring: controller 10.0.0.3: is on the ring and no pod has this address"}},
		{"single beside another", func(f *Facts) {
			f.Replicas[1].State.Config = []*skipperpb.ConfigValue{{Name: "single-controller-mode", Value: "true"}}
		}, []string{"problem ring: controller 10.0.0.2: runs in single controller mode"}},
		{"controller's clock is a little off", func(f *Facts) { f.Replicas[1].State.ObservedAt = timestamppb.New(now.Add(-4 * time.Second)) }, []string{"warning clock: controller 10.0.0.2: its clock and the API server's are at least 4s apart"}},
		{"controller's clock is far off", func(f *Facts) { f.Replicas[1].State.ObservedAt = timestamppb.New(now.Add(time.Minute)) }, []string{"problem clock: controller 10.0.0.2: its clock"}},
		{"slow answer", func(f *Facts) {
			f.Replicas[1].State.ObservedAt = timestamppb.New(now.Add(9 * time.Second))
			f.Replicas[1].Answered = now.Add(10 * time.Second)
		}, nil},
		{"own clock is off", func(f *Facts) {
			f.Server.Asked, f.Server.Answered = now.Add(time.Minute), now.Add(time.Minute)
			for i := range f.Replicas {
				f.Replicas[i].Asked, f.Replicas[i].Answered = now.Add(time.Minute), now.Add(time.Minute)
			}
		}, []string{"warning clock: this machine: its clock and the API server's are 59s apart"}},
		{"events", func(f *Facts) {
			misconfigured := func(age time.Duration, message string) *skipperpb.Event {
				return &skipperpb.Event{Timestamp: timestamppb.New(now.Add(-age)), Type: skipperpb.EventType_EVENT_TYPE_MISCONFIGURED, Message: message, ControllerIp: "10.0.0.1"}
			}
			f.Replicas[0].State.Events = []*skipperpb.Event{
				misconfigured(2*time.Hour, "old"), misconfigured(time.Minute, "fix it"), misconfigured(time.Second, "fix it"), {Type: skipperpb.EventType_EVENT_TYPE_POD_DELETED, Message: "fine"},
			}
		}, []string{"warning event: controller 10.0.0.1: fix it"}},
	})
}

func TestDiagnoseEnvoysAndExtprocs(t *testing.T) {
	t.Parallel()
	diagnose(t, []illness{
		{"Envoy refuses", func(f *Facts) {
			s := f.Replicas[0].State.Envoys[0].Subscriptions[0]
			s.Nacks, s.NackMessage = 2, "unknown field"
		}, []string{"problem envoy: Envoy envoy-1: refused 2 updates of cluster from controller 10.0.0.1, the last: unknown field"}},
		{"Envoy is late", func(f *Facts) {
			f.Replicas[0].State.Envoys[0].Subscriptions[0].Overdue = durationpb.New(11 * time.Second)
		}, []string{"problem envoy: Envoy envoy-1: has owed an answer on cluster"}},
		{"Envoy without streams", func(f *Facts) { f.Replicas[0].State.Envoys[0].Subscriptions = nil }, []string{"problem envoy: Envoy envoy-1: has no xDS stream"}},
		{"Envoy whose load reports move", func(f *Facts) { f.Replicas[0].State.Envoys[0].LoadControllerIp = "" }, nil},
		{"Envoy without load reports", func(f *Facts) {
			f.Replicas[0].State.Envoys[0].LoadControllerIp, f.Replicas[0].State.Envoys[0].LoadReportAge = "", nil
		}, []string{"warning envoy: Envoy envoy-1: sends load reports to no controller"}},
		{"Envoy with old load reports", func(f *Facts) { f.Replicas[0].State.Envoys[0].LoadReportAge = durationpb.New(time.Minute) }, []string{"warning envoy: Envoy envoy-1: its newest load report is 1m0s old"}},
		{"Envoy set up wrongly", func(f *Facts) { f.Replicas[0].State.Envoys[0].Problem = "two have this id" }, []string{"problem envoy: Envoy envoy-1: two have this id"}},
		{"extproc cut off, its Lease runs", func(f *Facts) { f.Replicas[0].State.Extprocs[0].Connected = false }, []string{
			"problem extproc: extproc r1: has no xDS stream", "warning lease: lease skipper-system/skipper-extproc-r1: its extproc has no stream, while pod envoy-1 is there",
		}},
		{"extproc says nothing", func(f *Facts) { f.Replicas[0].State.Extprocs[0].HeartbeatAge = durationpb.New(time.Minute) }, []string{"warning extproc: extproc r1: its newest heartbeat is 1m0s old"}},
		{"extproc is late", func(f *Facts) {
			f.Replicas[0].State.Extprocs[0].Subscriptions[0].Overdue = durationpb.New(time.Minute)
		}, []string{"problem extproc: extproc r1: has owed an answer on instances"}},
		{"Lease of a process that is gone", func(f *Facts) {
			f.Leases = append(f.Leases, Lease{Name: "l", Node: "extproc/r9", Envoy: "envoy-9", Renewed: now.Add(-time.Minute), Lasts: 5 * time.Minute})
		}, []string{"warning lease: lease skipper-system/l: its extproc went without goodbye, and so did its Envoy envoy-9"}},
		{"Lease that has expired", func(f *Facts) {
			f.Leases = append(f.Leases, Lease{Name: "l", Node: "extproc/r9", Renewed: now.Add(-time.Hour), Lasts: 5 * time.Minute})
		}, []string{"warning lease: lease skipper-system/l: its extproc is gone since"}},
		{"Leases while nobody answers", func(f *Facts) {
			f.Replicas, f.Leases[0].Node = nil, "extproc/r9"
		}, nil},
	})
}

// Facts are read, never changed, and the same facts give the same findings.
func TestDiagnoseIsPure(t *testing.T) {
	t.Parallel()
	f := healthy()
	f.Access = append(f.Access, Access{Who: "a", Namespace: "x", Verb: "list"}, Access{Who: "b", Namespace: "y", Verb: "list"}, Access{Who: "c", Namespace: "z", Verb: "list"})
	f.Replicas[1].State.ControllerIps = nil
	before := proto.CloneOf(f.Replicas[1].State)
	first := Diagnose(f)
	for range 20 {
		if d := cmp.Diff(first, Diagnose(f)); d != "" {
			t.Fatal(d)
		}
	}
	if !proto.Equal(before, f.Replicas[1].State) {
		t.Error("facts were changed")
	}
}

// What doctor asks about is what the manifests grant.
func TestRightsAreThoseOfTheManifests(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		folder, role string
		rights       []right
	}{{"base", "skipper-controller", systemRights()}, {"function-namespace", "skipper-functions", functionRights()}} {
		got := map[string]bool{}
		for _, r := range row.rights {
			for _, v := range r.verbs {
				got[v+" "+r.group+"/"+r.resource] = true
			}
		}
		if d := cmp.Diff(granted(t, row.folder, row.role), got); d != "" {
			t.Errorf("%s (-manifest +doctor):\n%s", row.folder, d)
		}
	}
}

// granted is what a Role in a folder of manifests grants.
func granted(t *testing.T, folder, role string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("../../../../deploy/" + folder + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var r rbacv1.Role
			if err := yaml.Unmarshal([]byte(document), &r); err != nil {
				t.Fatal(err)
			}
			if r.Kind == "Role" && r.Name == role {
				add(out, r.Rules)
			}
		}
	}
	if len(out) == 0 {
		t.Fatalf("no Role %s in deploy/%s", role, folder)
	}
	return out
}

func add(out map[string]bool, rules []rbacv1.PolicyRule) {
	for _, r := range rules {
		for _, v := range r.Verbs {
			for _, g := range r.APIGroups {
				for _, resource := range r.Resources {
					out[v+" "+g+"/"+resource] = true
				}
			}
		}
	}
}
