package server_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	skipperpb "skipper/proto"
	"skipper/xds/server"
)

// TestStuckSubscriberHarmsNobody has one client that never reads, more than
// its connection can hold waiting for it, and one that gets everything.
func TestStuckSubscriberHarmsNobody(t *testing.T) {
	s := server.New(server.Options{Shards: 1})
	s.Open()
	stuck := connect(t, start(t, s), "stuck")
	stuck.subscribe(endpoints, "skipper-http1-000")
	healthy := connect(t, start(t, s), "healthy")
	healthy.subscribe(endpoints, "skipper-http1-000")
	healthy.next(endpoints)
	var last uint64
	for i := range 8 {
		c := server.Change{}
		for n := range 400 {
			c.Upsert = append(c.Upsert, pod(fmt.Sprintf("%d-%d", i, n), fmt.Sprintf("10.%d.%d.%d:80", i, n/250, n%250)))
		}
		last = s.Apply(c)
		healthy.next(endpoints)
	}
	healthy.subscribe(endpoints, "barrier")
	healthy.next(endpoints)
	if diff := cmp.Diff([]string{"stuck"}, s.Unacknowledged(endpoints, "skipper-http1-000", last)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// When it reads at last, it gets the newest form, not eight.
	stuck.next(endpoints)
	if got := len(stuck.next(endpoints).GetResources()); got != 1 {
		t.Errorf("got %d resources", got)
	}
	s.Apply(server.Change{Remove: []string{"0-0"}})
	healthy.next(endpoints)
	stuck.next(endpoints)
}

func TestClientThatDoesNotAnswerIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		s := server.New(server.Options{Shards: 1, StuckAfter: time.Minute, Registerer: registry})
		s.Open()
		conn := start(t, s)
		silent, idle := openInBubble(t, conn), openInBubble(t, conn)
		silent.subscribe(clusters)
		silent.read(clusters)
		idle.subscribe(clusters)
		idle.next(clusters)
		begun := time.Now()
		if err := silent.end(); status.Code(err) != codes.Aborted {
			t.Errorf("ended with %v", err)
		}
		if waited := time.Since(begun); waited < time.Minute || waited > 2*time.Minute {
			t.Errorf("closed after %v", waited)
		}
		s.Apply(server.Change{Upsert: []server.Endpoint{pod("a", "10.0.0.1:80")}})
		if got := len(idle.next(clusters).GetResources()); got != 2 {
			t.Errorf("the idle client got %d clusters", got)
		}
		if got := metric(t, registry, "skipper_controller_xds_streams_closed_total", "stuck"); got != 1 {
			t.Errorf("%v streams counted as stuck", got)
		}
	})
}

// TestFirstSubscriptionMissesNoChange lets lists change while clients
// subscribe and unsubscribe: whatever the order, the last word must arrive.
func TestFirstSubscriptionMissesNoChange(t *testing.T) {
	const rounds, name = 300, "a/b/c"
	src := &source{}
	s := server.New(server.Options{Source: src})
	s.Open()
	c := connect(t, start(t, s), "extproc")
	c.subscribe(instances, "a/b/first")
	c.next(instances)
	for round := range rounds {
		want := list(name, uint64(round+1), fmt.Sprintf("pod-%d", round))
		var writer sync.WaitGroup
		writer.Go(func() {
			src.set(want)
			s.Apply(server.Change{Instances: protoList(want)})
		})
		c.subscribe(instances, name)
		for got := ""; got != want.GetInstances()[0].GetUid(); {
			got = lastUID(read1(t, c.next(instances)))
		}
		writer.Wait()
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: instances, ResourceNamesUnsubscribe: []string{name}})
	}
}

// lastUID is "" for an empty list.
func lastUID(m *skipperpb.FunctionInstances) string {
	uid := ""
	for _, i := range m.GetInstances() {
		uid = i.GetUid()
	}
	return uid
}

func TestOlderListNeverReplacesNewer(t *testing.T) {
	src := &source{}
	src.set(list("a/b/c", 5, "new"))
	s := server.New(server.Options{Source: src})
	s.Open()
	c := connect(t, start(t, s), "extproc")
	c.subscribe(instances, "a/b/c", "a/b/last")
	c.next(instances)
	s.Apply(server.Change{Instances: protoList(list("a/b/c", 4, "old"))})
	s.Apply(server.Change{Instances: protoList(list("a/b/last", 6, "x"))})
	if got := read1(t, c.next(instances)); got.GetName() != "a/b/last" {
		t.Errorf("got %v", got)
	}
	s.Apply(server.Change{Instances: protoList(list("a/b/c", 5, "same version, later word"))})
	if got := lastUID(read1(t, c.next(instances))); got != "same version, later word" {
		t.Errorf("got %q", got)
	}
}

func TestUnacknowledgedFollowsEverySubscriber(t *testing.T) {
	s := server.New(server.Options{Shards: 1})
	s.Open()
	conn := start(t, s)
	const name = "skipper-http1-000"
	one, two, other := connect(t, conn, "one"), connect(t, conn, "two"), connect(t, conn, "other")
	for _, c := range []*raw{one, two} {
		c.subscribe(endpoints, name)
		c.next(endpoints)
	}
	other.subscribe(endpoints, "unrelated")
	other.next(endpoints)
	generation := s.Apply(server.Change{Upsert: []server.Endpoint{pod("a", "10.0.0.1:80")}})
	one.ack(one.read(endpoints))
	one.subscribe(endpoints, "barrier")
	one.next(endpoints)
	held := two.read(endpoints)
	if diff := cmp.Diff([]string{"two"}, s.Unacknowledged(endpoints, name, generation)); diff != "" {
		t.Errorf("one of two (-want +got):\n%s", diff)
	}
	two.ack(held)
	two.subscribe(endpoints, "barrier")
	two.next(endpoints)
	if got := s.Unacknowledged(endpoints, name, generation); len(got) > 0 {
		t.Errorf("still waiting for %v", got)
	}
	if got := s.Unacknowledged("no such type", name, 0); got != nil {
		t.Errorf("unknown type: %v", got)
	}
}

// TestManyAtOnce is for the race detector: everything that may be called
// concurrently is.
func TestManyAtOnce(t *testing.T) {
	s := server.New(server.Options{Source: &source{}, Shards: shards, FamilyLinger: -1})
	s.Open()
	conn := start(t, s)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 50 {
				uid := fmt.Sprintf("%d-%d", i, n%5)
				s.Apply(server.Change{Upsert: []server.Endpoint{pod(uid, "10.0.0.1:80")}, Instances: protoList(list("a/b/c", uint64(n), uid))})
				s.Apply(server.Change{Remove: []string{uid}})
				s.Unacknowledged(endpoints, "skipper-http1-000", 1)
			}
		})
	}
	for i := range 4 {
		c := connect(t, conn, fmt.Sprint(i))
		all.Go(func() {
			c.subscribe(clusters)
			c.subscribe(instances, "a/b/c")
			for range 20 {
				r, err := c.stream.Recv()
				if err != nil {
					t.Errorf("receive: %v", err)
					return
				}
				c.ack(r)
				c.subscribe(instances, "a/b/c") // so there is always another one
			}
		})
	}
	all.Wait()
}
