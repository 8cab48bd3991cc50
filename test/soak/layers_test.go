//go:build e2e

package soak

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/xds"
)

const (
	// never is a staleness bound that no test reaches, so that layer 3 is off.
	never = time.Hour
	// soon is one that a test can wait for.
	soon = 10 * time.Second
)

// layersOn says which layers of isolation a test leaves on.
type layersOn struct {
	image     Image         // Guarded: layer 1
	partition Kind          // PartitionExtproc, so that Envoy hears of all: layer 2
	bound     time.Duration // soon: layer 3
	fence     bool          // layer 4
}

// stale is a gateway that has missed that tenant a's pod died and its address,
// the only one that there is, went to tenant b's.
type stale struct {
	*world
	a, b    *Client // by way of the stale gateway, and of the other one
	foreign atomic.Int64
}

// newStale returns when tenant a's pod is gone, and its address is that of a pod
// that may not have a tenant yet.
func newStale(t *testing.T, on layersOn) *stale {
	t.Helper()
	s := &stale{}
	s.world = newWorld(t, options{
		controllers: 1, gateways: 2, images: map[Image]int{on.image: 1}, seed: 1, addresses: 1,
		controllerStaleness: soon, extprocStaleness: on.bound,
		tell: func(v string) {
			s.foreign.Add(1)
			t.Log(v)
		},
	})
	transport := &http.Transport{DisableKeepAlives: true}
	s.a, s.b = s.client(1, on.image, transport), s.client(2, on.image, transport)
	s.a.Gateways, s.b.Gateways = s.a.Gateways[:1], s.b.Gateways[1:]
	s.eventually("tenant a is served", func() (bool, string) {
		outcome := s.a.Ask(t.Context(), pathQuick)
		return outcome == OK, outcome
	})
	begin, _ := s.harm(t.Context(), Event{Kind: on.partition, Target: 0})
	begin()
	first := s.owner()
	s.replace(first.UID)
	if !on.fence {
		s.forget()
	}
	return s
}

// forget switches the fence off: the controller is killed, and what is written
// down of extprocs is deleted before it starts again, so that it does not know
// of the one that is away.
func (s *stale) forget() {
	s.t.Helper()
	r := s.controllers[0]
	s.endController(s.t.Context(), r, syscall.SIGKILL)
	leases := s.kube.CoordinationV1().Leases(s.home)
	if err := leases.DeleteCollection(s.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.startController(s.t.Context(), r)
}

// owner is the pod that has the address.
func (s *stale) owner() Tenure {
	past := s.addresses.Past("127.77.0.1")
	return past[len(past)-1]
}

// replace kills the pod and waits until another has its address, one that lies
// in another shard, as all but one in 256 do.
func (s *stale) replace(uid string) {
	s.t.Helper()
	shard := func(uid string) int { return xds.ShardOf(uid, xds.DefaultShards) }
	s.eventually("another pod has the address", func() (bool, string) {
		now := s.owner()
		if shard(now.UID) == shard(uid) {
			zero := int64(0)
			err := s.kube.CoreV1().Pods(s.field).Delete(s.t.Context(), now.Pod, metav1.DeleteOptions{GracePeriodSeconds: &zero})
			return false, fmt.Sprint("deleted ", now.Pod, err)
		}
		return now.UID != uid, now.String()
	})
}

// serveB waits until tenant b has the address.
func (s *stale) serveB() {
	s.t.Helper()
	s.eventually("tenant b is served", func() (bool, string) {
		outcome := s.b.Ask(s.t.Context(), pathQuick)
		return outcome == OK, outcome
	})
	if now := s.owner(); now.Tenant != s.b.Tenant {
		s.t.Fatalf("%s was served by another pod than %s", s.b.Tenant, now)
	}
}

// askA sends a few requests of tenant a through the stale gateway: where it
// knows no answer, each takes the hold timeout.
func (s *stale) askA() map[string]int {
	out := map[string]int{}
	for range 3 {
		out[s.a.Ask(s.t.Context(), pathQuick)]++
	}
	return out
}

// Without any layer the danger is real, and the harness sees it.
func TestNoLayerCatchesNothing(t *testing.T) {
	s := newStale(t, layersOn{image: Plain, partition: PartitionBoth, bound: never})
	s.serveB()
	if outcomes := s.askA(); s.foreign.Load() == 0 {
		t.Errorf("outcomes %v and no violation: the test of the layers shows nothing", outcomes)
	}
}

// Layer 1: the pod refuses what is meant for the one before it.
func TestLayer1PodRefuses(t *testing.T) {
	s := newStale(t, layersOn{image: Guarded, partition: PartitionBoth, bound: never})
	s.serveB()
	s.wantNone(s.askA())
}

// Layer 2: extproc names the shard of the pod that died, in which Envoy no
// longer finds the address.
func TestLayer2EnvoyFindsNoHost(t *testing.T) {
	s := newStale(t, layersOn{image: Plain, partition: PartitionExtproc, bound: never})
	s.serveB()
	s.wantNone(s.askA())
}

// Layer 3: extproc stops using a table that nobody confirms. Until then nothing
// holds tenant a back, which shows that no other layer does.
func TestLayer3TableExpires(t *testing.T) {
	s := newStale(t, layersOn{image: Plain, partition: PartitionBoth, bound: soon})
	s.serveB()
	s.askA()
	if s.foreign.Load() == 0 {
		t.Fatal("tenant a was held back before the table expired, by something else than the layer")
	}
	s.eventually("the table expires", func() (bool, string) {
		before := s.foreign.Load()
		outcome := s.a.Ask(t.Context(), pathQuick)
		return s.foreign.Load() == before, outcome
	})
	before := s.foreign.Load()
	if outcomes := s.askA(); s.foreign.Load() != before {
		t.Errorf("outcomes %v after the table expired: %d reached tenant b's pod", outcomes, s.foreign.Load()-before)
	}
}

// Layer 4: the address is not given to tenant b while extproc may use its table,
// though that extproc is silent and Envoy still has the address.
func TestLayer4FenceHoldsTheAddress(t *testing.T) {
	s := newStale(t, layersOn{image: Plain, partition: PartitionBoth, bound: soon, fence: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	outcomes := map[string]int{}
	var asking sync.WaitGroup
	asking.Go(func() {
		for ctx.Err() == nil {
			outcomes[s.a.Ask(t.Context(), pathQuick)]++
			pause(ctx, glance)
		}
	})
	s.serveB()
	cancel()
	asking.Wait()
	for o, n := range s.askA() {
		outcomes[o] += n
	}
	s.wantNone(outcomes)
	if s.ledger.visitsOf(string(Plain)+" image: "+string(Stray)) == 0 {
		t.Errorf("outcomes %v: tenant a's requests went nowhere, so nothing but the fence was tried", outcomes)
	}
}

func (s *stale) wantNone(outcomes map[string]int) {
	s.t.Helper()
	if n := s.foreign.Load(); n > 0 {
		s.t.Errorf("%d requests of tenant a reached tenant b's pod; outcomes %v", n, outcomes)
	}
	if outcomes[OK] > 0 {
		s.t.Errorf("outcomes %v: tenant a has no pod and cannot be served", outcomes)
	}
	s.t.Logf("outcomes of tenant a: %v", outcomes)
}
