package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/controller/config"
	"skipper/controller/lease"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
)

func TestBlind(t *testing.T) {
	const s = 5 * time.Minute
	for name, row := range map[string]struct {
		sight sight
		why   string
	}{
		"sees":                                  {sight{age: time.Minute, others: 2, heard: 2, fresh: 2}, ""},
		"frozen":                                {sight{frozen: true}, "frozen"},
		"old, others see":                       {sight{age: 5 * time.Minute, others: 2, heard: 2, fresh: 1}, "cut off from the API server, which"},
		"old, others do not see either":         {sight{age: time.Hour, others: 2, heard: 2}, ""},
		"old and alone, for the API is down":    {sight{age: time.Hour}, ""},
		"old, others silent":                    {sight{age: 6 * time.Minute, others: 2, heard: 1}, "and from other replicas"},
		"a little old, others silent":           {sight{age: 4 * time.Minute, others: 2, heard: 0}, ""},
		"as old as bookmarks make it at a time": {sight{age: 170 * time.Second, others: 1, heard: 1, fresh: 1}, ""},
	} {
		if got := blind(row.sight, s); !strings.Contains(got, row.why) || (row.why == "") != (got == "") {
			t.Errorf("%s: %q, want %q", name, got, row.why)
		}
	}
}

func TestGateOpensOnlyWhatItHeldAndNothingOnceShut(t *testing.T) {
	var g xdsGate
	var log []string
	hold, open := func(why string) { log = append(log, why) }, func() { log = append(log, "open") }
	for _, why := range []string{"", "frozen", "frozen", "", ""} {
		if _, err := g.set(why, hold, open); err != nil {
			t.Fatal(err)
		}
	}
	g.close()
	if _, err := g.set("frozen", hold, open); err == nil {
		t.Error("it moves although it is shut")
	}
	if want := []string{"frozen", "open"}; !slices.Equal(log, want) {
		t.Errorf("%v, want %v", log, want)
	}
}

// TestDrainWaitsForASubscriberOfAnotherReplica follows one from the list that
// lacks the pod to its acknowledgement and the deletion.
func TestDrainWaitsForASubscriberOfAnotherReplica(t *testing.T) {
	c := startCrowd(t, 3, 2, func(cfg *config.Config) {
		cfg.HeartbeatTimeout, cfg.DownscaleStabilization = 2*time.Second, time.Second // a short protection after the start
		cfg.ScaleInterval = time.Second
	})
	f := c.ownedBy(0)
	i, err := c.replicas[0].get(f)
	if err != nil {
		t.Fatal(err)
	}
	far := c.replicas[1].subscribe(xds.InstancesTypeURL, xds.InstancesName(fn.KeyOf(f)))
	far.until("the instance", holds(t, i.GetUid()))
	if _, err := c.replicas[2].client.ReleaseInstance(t.Context(), &skipperpb.ReleaseInstanceRequest{Instance: i}); err != nil {
		t.Fatal(err)
	}
	without := far.hold(t)
	c.staysFor(t, "drain whose subscriber is silent", 4*time.Second, i.GetUid())
	far.answer(t, without)
	c.until("deletion of the drained pod", func(pods []corev1.Pod) bool {
		return !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return string(p.UID) == i.GetUid() })
	})
}

// hold reads the next response and does not answer it.
func (s *subscription) hold(t *testing.T) *discoveryv3.DeltaDiscoveryResponse {
	t.Helper()
	r, err := s.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// answer acknowledges a response, and goes on to acknowledge all that follow.
func (s *subscription) answer(t *testing.T, r *discoveryv3.DeltaDiscoveryResponse) {
	t.Helper()
	if err := s.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			next, err := s.stream.Recv()
			if err != nil {
				return
			}
			_ = s.stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: next.GetTypeUrl(), ResponseNonce: next.GetNonce()}) // the end is seen by Recv
		}
	}()
	t.Cleanup(func() { <-done })
}

// staysFor watches that the pod is not deleted for that long.
func (c *crowd) staysFor(t *testing.T, what string, d time.Duration, uid string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	changes, err := c.api.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	for {
		select {
		case e := <-changes.ResultChan():
			if p, ok := e.Object.(*corev1.Pod); ok && string(p.UID) == uid && e.Type == "DELETED" {
				t.Fatalf("%s: pod deleted", what)
			}
		case <-ctx.Done():
			return
		}
	}
}

// TestAddressOfAWithdrawnPodIsNotClaimed gives a new pod the address of one that
// left while a subscriber had not heard of that.
func TestAddressOfAWithdrawnPodIsNotClaimed(t *testing.T) {
	w := startWorld(t, 1, nil)
	f := function("t1")
	i, err := w.get(f)
	if err != nil {
		t.Fatal(err)
	}
	s := w.subscribe(xds.InstancesTypeURL, xds.InstancesName(fn.KeyOf(f)))
	s.until("the instance", holds(t, i.GetUid()))
	old, err := w.api.CoreV1().Pods(namespace).Get(t.Context(), i.GetName(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.api.CoreV1().Pods(namespace).Delete(t.Context(), old.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	without := s.hold(t)
	next := idlePod(7, 0)
	next.Annotations = map[string]string{pool.AnnotationPort: old.Annotations[pool.AnnotationPort]}
	if _, err := w.api.CoreV1().Pods(namespace).Create(t.Context(), next, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if r, err := w.client.GetInstance(ctx, &skipperpb.GetInstanceRequest{Function: function("t2")}, grpc.WaitForReady(true)); err == nil {
		t.Fatalf("t2 was given %s at the address of t1's pod", r.GetInstance())
	}
	s.answer(t, without)
	if got, err := w.get(function("t2")); err != nil || got.GetUid() != "uid-7" {
		t.Errorf("once it has heard: %v, %v", got, err)
	}
}

// TestGoodbyeReachesTheLease follows one from the heartbeat to the API server.
func TestGoodbyeReachesTheLease(t *testing.T) {
	w := startWorld(t, 0, nil)
	node, leases := "extproc/r1", w.api.CoordinationV1().Leases("skipper-system")
	known := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "skipper-extproc-r1"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &node}}
	if _, err := leases.Create(t.Context(), known, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	changes, err := leases.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	bye := &skipperpb.HeartbeatRequest{RouterIp: "10.0.0.9", RouterId: "r1", Goodbye: true}
	if _, err := w.client.Heartbeat(ctx, bye, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case e := <-changes.ResultChan():
			if e.Type == "DELETED" {
				return
			}
		case <-ctx.Done():
			t.Fatal("the lease is still there")
		}
	}
}

// TestIdleSuccessorFreesTheAddresses starts a controller that reads of an extproc
// of an earlier time, killed meanwhile, which holds up all pods that are new. The
// next one in its pod has had no request yet, and says only that it is there.
func TestIdleSuccessorFreesTheAddresses(t *testing.T) {
	w := newWorld(t)
	node, then := "extproc/r1", metav1.NewMicroTime(time.Now().Add(-time.Minute))
	lost := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: "skipper-extproc-r1", Labels: map[string]string{lease.Label: lease.LabelValue},
			Annotations: map[string]string{"skipper/envoy-node": "gateway-1", "skipper/router-ip": "10.0.0.9"},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node, AcquireTime: &then, RenewTime: &then},
	}
	if _, err := w.api.CoordinationV1().Leases("skipper-system").Create(t.Context(), lost, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.start(1, nil)
	hello := func(id, ip string) {
		r := &skipperpb.HeartbeatRequest{RouterIp: ip, RouterId: id, EnvoyNodeId: "gateway-1", RunningFor: durationpb.New(time.Second)}
		if _, err := w.client.Heartbeat(t.Context(), r, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
	}
	hello("twin", "10.0.0.8")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if r, err := w.client.GetInstance(ctx, &skipperpb.GetInstanceRequest{Function: function("t1")}, grpc.WaitForReady(true)); err == nil {
		t.Fatalf("%s was given although an extproc that may know its address is away", r.GetInstance())
	}
	hello("r2", "10.0.0.9")
	if _, err := w.get(function("t1")); err != nil {
		t.Errorf("once its successor has said that it is there: %v", err)
	}
}
