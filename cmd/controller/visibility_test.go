package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/controller/config"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// stateUntil asks for the cluster's state until ok says that it is what it should be.
func (w *world) stateUntil(what string, q *skipperpb.GetClusterStateRequest, ok func(*skipperpb.ClusterState) bool) *skipperpb.ClusterState {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	var last *skipperpb.ClusterState
	for {
		r, err := w.client.GetClusterState(ctx, q)
		if err != nil {
			w.t.Fatalf("%s: %v; last %v", what, err, last)
		}
		if last = r.GetClusterState(); ok(last) {
			return last
		}
	}
}

func tenants(s *skipperpb.ClusterState) (out []string) {
	for _, one := range s.GetSupervisors() {
		out = append(out, one.GetFunction().GetTenant())
	}
	return out
}

// alike leaves out what may differ between two answers about the same cluster.
func alike(s *skipperpb.ClusterState) *skipperpb.ClusterState {
	s = proto.CloneOf(s)
	s.PodIp, s.StartedAt, s.ObservedAt = "", nil, nil
	for _, r := range s.GetReplicas() {
		r.ViewAge = nil
	}
	for _, e := range s.GetExtprocs() {
		e.HeartbeatAge = nil
	}
	for _, one := range s.GetSupervisors() {
		one.Decision = nil // may be made anew in between
		for _, i := range one.GetInstances() {
			i.Version = 0 // ready-at may be written in between
		}
	}
	return s
}

func TestEveryReplicaAnswersForTheWholeCluster(t *testing.T) {
	c := startCrowd(t, 3, 6, func(cfg *config.Config) { cfg.ScaleInterval = time.Second })
	var want []string
	for i := range c.replicas {
		f := c.ownedBy(i)
		want = append(want, f.GetTenant())
		if _, err := c.replicas[(i+1)%3].get(f); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.replicas[0].client.Heartbeat(t.Context(), &skipperpb.HeartbeatRequest{
		RouterIp: "10.9.0.1", RouterId: "r", EnvoyNodeId: "e", Heartbeats: []*skipperpb.Heartbeat{{Function: c.ownedBy(1), InFlightRequests: 4}},
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	var answers []*skipperpb.ClusterState
	for _, r := range c.replicas {
		answers = append(answers, r.stateUntil("whole", nil, func(s *skipperpb.ClusterState) bool {
			decided := !slices.ContainsFunc(s.GetSupervisors(), func(one *skipperpb.SupervisorState) bool { return one.GetDecision() == nil })
			return decided && slices.Equal(slices.Sorted(slices.Values(tenants(s))), want) && len(s.GetExtprocs()) == 1 && len(s.GetEvents()) >= 3
		}))
	}
	for i, s := range answers {
		if s.GetPodIp() != c.ips[i] || s.GetPartial() {
			t.Errorf("answer of %s, partial %v, want %s's", s.GetPodIp(), s.GetPartial(), c.ips[i])
		}
		if d := cmp.Diff(alike(answers[0]), alike(s), protocmp.Transform()); d != "" {
			t.Errorf("replica %d says otherwise (-first +this):\n%s", i, d)
		}
	}
	c.checkWhole(answers[0])
}

// checkWhole looks at what the crowd of the test above must show.
func (c *crowd) checkWhole(s *skipperpb.ClusterState) {
	c.t.Helper()
	c.checkReplicas(s.GetReplicas())
	for _, one := range s.GetSupervisors() {
		c.checkSupervisor(one)
	}
	if p := s.GetPools(); len(p) != 1 || p[0].GetReadyPods() != 3 || p[0].GetAssignedPods() != 3 || p[0].GetActiveReplicaSet() != "echo-1" {
		c.t.Errorf("pools %v", p)
	}
	e := s.GetExtprocs()[0]
	if e.GetRouterId() != "r" || e.GetRouterIp() != "10.9.0.1" || e.GetEnvoyNodeId() != "e" || e.GetFunctions() != 1 || e.GetHeartbeatAge() == nil {
		c.t.Errorf("router %v", e)
	}
	if !slices.IsSortedFunc(s.GetEvents(), func(a, b *skipperpb.Event) int { return a.GetTimestamp().AsTime().Compare(b.GetTimestamp().AsTime()) }) {
		c.t.Errorf("events are out of order: %v", s.GetEvents())
	}
}

func (c *crowd) checkReplicas(all []*skipperpb.ReplicaState) {
	c.t.Helper()
	for i, r := range all {
		if r.GetIp() != c.ips[i] || !r.GetSynced() || r.GetUnreachableReason() != "" || r.GetViewAge() == nil || !slices.Equal(r.GetRingMembers(), c.ips) {
			c.t.Errorf("replica %v", r)
		}
	}
}

func (c *crowd) checkSupervisor(one *skipperpb.SupervisorState) {
	c.t.Helper()
	d := one.GetDecision()
	if one.GetReportedBy() != one.GetResponsibleControllerIp() || d.GetDesiredInstances() != 1 || d.GetMessage() == "" || len(one.GetInstances()) != 1 ||
		one.GetInstances()[0].GetState() != skipperpb.InstanceState_INSTANCE_STATE_READY {
		c.t.Errorf("supervisor %v", one)
	}
	if f := one.GetInFlightRequests(); (f == 4) != (one.GetFunction().GetTenant() == c.ownedBy(1).GetTenant()) {
		c.t.Errorf("%d requests in flight of %v", f, one.GetFunction())
	}
}

func TestQuestionNarrowsTheAnswer(t *testing.T) {
	c := startCrowd(t, 3, 6, nil)
	f := c.ownedBy(2)
	for _, one := range []*skipperpb.Function{c.ownedBy(0), f} {
		if _, err := c.replicas[0].get(one); err != nil {
			t.Fatal(err)
		}
	}
	s := c.replicas[1].stateUntil("narrowed", &skipperpb.GetClusterStateRequest{Tenant: f.GetTenant()}, func(s *skipperpb.ClusterState) bool {
		return len(s.GetSupervisors()) == 1 && len(s.GetEvents()) > 0
	})
	for _, e := range s.GetEvents() {
		if fn.KeyOf(e.GetFunction()) != fn.KeyOf(f) {
			t.Errorf("event of %v, want of %v only", e.GetFunction(), f)
		}
	}
	if s := c.replicas[1].stateUntil("without supervisors", &skipperpb.GetClusterStateRequest{WithoutSupervisors: true}, func(*skipperpb.ClusterState) bool { return true }); len(s.GetSupervisors()) > 0 || len(s.GetReplicas()) != 3 {
		t.Errorf("%d supervisors and %d replicas, want 0 and 3", len(s.GetSupervisors()), len(s.GetReplicas()))
	}
}

// A replica that has gone while its pod still counts as ready is named, and its
// functions are shown as the others see them.
func TestSilentReplicaIsNamed(t *testing.T) {
	c := startCrowd(t, 3, 6, nil)
	f := c.ownedBy(2)
	if _, err := c.replicas[2].get(f); err != nil {
		t.Fatal(err)
	}
	c.replicas[0].stateUntil("known here", nil, func(s *skipperpb.ClusterState) bool { return len(s.GetSupervisors()) == 1 })
	if err := c.replicas[2].stop(); err != nil {
		t.Error(err)
	}
	s := c.replicas[0].stateUntil("silent", nil, func(s *skipperpb.ClusterState) bool { return s.GetPartial() })
	last := s.GetReplicas()[2]
	if len(s.GetReplicas()) != 3 || last.GetIp() != c.ips[2] || last.GetUnreachableReason() == "" || last.GetSynced() {
		t.Errorf("replicas %v", s.GetReplicas())
	}
	one := s.GetSupervisors()[0]
	if one.GetReportedBy() != c.ips[0] || one.GetResponsibleControllerIp() != c.ips[2] || len(one.GetInstances()) != 1 || one.GetDecision() != nil {
		t.Errorf("supervisor of the silent replica's function: %v", one)
	}
}

// typesOf are those of the events about an instance that say something, in order.
func typesOf(all []*skipperpb.Event, i *skipperpb.Instance) string {
	var out []string
	for _, e := range all {
		if e.GetInstanceName() == i.GetName() && e.GetInstanceUid() == i.GetUid() && e.GetControllerIp() == "10.0.0.1" && e.GetMessage() != "" {
			out = append(out, strings.TrimPrefix(e.GetType().String(), "EVENT_TYPE_"))
		}
	}
	return strings.Join(out, " ")
}

// reasonsOn are those of the events on an instance's pod, sorted.
func reasonsOn(all []corev1.Event, i *skipperpb.Instance) string {
	var out []string
	for _, e := range all {
		if e.InvolvedObject.Name == i.GetName() && string(e.InvolvedObject.UID) == i.GetUid() {
			out = append(out, e.Reason)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Decisions stand in the events of the cluster's state, and on the pods.
func TestDecisionsAreTold(t *testing.T) {
	w := startWorld(t, 2, nil)
	i, err := w.get(function("t"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.ReleaseInstance(t.Context(), &skipperpb.ReleaseInstanceRequest{Instance: i}); err != nil {
		t.Fatal(err)
	}
	w.stateUntil("told", nil, func(s *skipperpb.ClusterState) bool { return typesOf(s.GetEvents(), i) == "POD_ASSIGNED POD_DRAINING" })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for told := ""; told != "PodAssigned PodDraining"; {
		list, err := w.api.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
		if err != nil || ctx.Err() != nil {
			t.Fatalf("events on the pod: %q, %v", told, err)
		}
		told = reasonsOn(list.Items, i)
	}
}

func TestRefusalIsTold(t *testing.T) {
	w := startWorld(t, 1, nil)
	w.mu.Lock()
	w.status = 500
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := w.client.GetInstance(ctx, &skipperpb.GetInstanceRequest{Function: function("t")}); err == nil {
		t.Fatal("GetInstance of a function whose pods refuse succeeds")
	}
	w.stateUntil("told", nil, func(s *skipperpb.ClusterState) bool {
		return slices.ContainsFunc(s.GetEvents(), func(e *skipperpb.Event) bool {
			return e.GetType() == skipperpb.EventType_EVENT_TYPE_ASSIGNMENT_REFUSED && strings.Contains(e.GetMessage(), "500") &&
				e.GetSeverity() == skipperpb.EventSeverity_EVENT_SEVERITY_WARN && e.GetFunction().GetTenant() == "t"
		})
	})
}
