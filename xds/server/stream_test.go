package server_test

import (
	"context"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"skipper/xds"
	"skipper/xds/server"
)

func TestEnvoyGetsClustersThenEndpoints(t *testing.T) {
	s := server.New(server.Options{Shards: shards})
	s.Apply(server.Change{Upsert: []server.Endpoint{pod("a", "10.0.0.1:80")}})
	s.Open()
	c := connect(t, start(t, s), "envoy")
	c.subscribe(clusters)
	want := []string{"skipper-http1-000", "skipper-http1-001", "skipper-http1-002", "skipper-http1-003"}
	var all []string // a routed cluster comes right behind its shard, never before it
	for _, name := range want {
		all = append(all, name, name+"-routed")
	}
	if diff := cmp.Diff(all, names(c.next(clusters))); diff != "" {
		t.Fatalf("clusters (-want +got):\n%s", diff)
	}
	c.subscribe(endpoints, want...)
	if diff := cmp.Diff(want, names(c.next(endpoints))); diff != "" {
		t.Fatalf("every cluster must have endpoints, if only none (-want +got):\n%s", diff)
	}
	s.Apply(server.Change{Upsert: []server.Endpoint{pod("b", "10.0.0.2:80")}})
	if diff := cmp.Diff([]string{xds.ShardClusterOf(xds.HTTP1, "b", shards)}, names(c.next(endpoints))); diff != "" {
		t.Errorf("after one pod (-want +got):\n%s", diff)
	}
}

func TestFirstPodOfAProtocolBringsItsFamily(t *testing.T) {
	s := server.New(server.Options{Shards: shards})
	s.Open()
	c := connect(t, start(t, s), "envoy")
	c.subscribe(clusters)
	if r := c.next(clusters); len(r.GetResources()) > 0 {
		t.Fatalf("clusters without a pool: %v", names(r))
	}
	s.Apply(server.Change{Upsert: []server.Endpoint{{UID: "a", Addr: "10.0.0.1:80", Protocol: xds.H2C}}})
	if got := names(c.next(clusters)); len(got) != 2*shards || got[0] != "skipper-h2c-000" {
		t.Errorf("got %v", got)
	}
}

func TestStreamsWaitForTheFirstFullBuild(t *testing.T) {
	s := server.New(server.Options{Shards: shards})
	conn := start(t, s)
	c := connect(t, conn, "envoy")
	c.subscribe(clusters)
	impatient, cancel := context.WithCancel(t.Context())
	g, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(impatient)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := g.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("a waiting stream that is cancelled ends with %v", err)
	}
	s.Apply(server.Change{Upsert: []server.Endpoint{pod("a", "10.0.0.1:80")}})
	s.Open()
	if got := len(c.next(clusters).GetResources()); got != 2*shards {
		t.Errorf("the first response has %d clusters, want %d", got, 2*shards)
	}
}

func TestRequestsThatEndTheStream(t *testing.T) {
	s := server.New(server.Options{Shards: shards, MaxNames: 2})
	s.Open()
	conn := start(t, s)
	for _, row := range []struct {
		name, typeURL string
		names         []string
		want          codes.Code
	}{
		{"all tenants' tables", instances, nil, codes.InvalidArgument},
		{"all tenants' tables by star", instances, []string{"*"}, codes.InvalidArgument},
		{"star beside a name", instances, []string{"a/b/c", "*"}, codes.InvalidArgument},
		{"no function", instances, []string{"a/b"}, codes.InvalidArgument},
		{"other type", "type.googleapis.com/envoy.config.listener.v3.Listener", nil, codes.InvalidArgument},
		{"no type", "", nil, codes.InvalidArgument},
		{"too many", endpoints, []string{"a", "b", "c"}, codes.ResourceExhausted},
	} {
		c := connect(t, conn, "client")
		c.subscribe(row.typeURL, row.names...)
		if err := c.end(); status.Code(err) != row.want {
			t.Errorf("%s: ended with %v, want %s", row.name, err, row.want)
		}
	}
}

func TestStateOfTheWorldIsNotServed(t *testing.T) {
	s := server.New(server.Options{})
	s.Open()
	g, err := discoveryv3.NewAggregatedDiscoveryServiceClient(start(t, s)).StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.Recv()
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "DELTA_GRPC") {
		t.Errorf("got %v", err)
	}
}

func TestRejectionIsCountedSaidAndSurvived(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	registry := prometheus.NewRegistry()
	s := server.New(server.Options{Shards: shards, Logger: zap.New(core), Registerer: registry})
	s.Open()
	c := connect(t, start(t, s), "envoy-1")
	const name = "skipper-http1-000"
	c.subscribe(endpoints, name)
	c.next(endpoints)
	generation := s.Apply(server.Change{Upsert: []server.Endpoint{pod(uidIn(0), "10.0.0.1:80")}})
	c.nack(c.read(endpoints), "I cannot read it")
	later := s.Apply(server.Change{Upsert: []server.Endpoint{pod(uidIn(0), "10.0.0.2:80")}})
	r := c.read(endpoints) // so the rejection was taken in, and the stream goes on
	if diff := cmp.Diff([]string{"envoy-1"}, s.Unacknowledged(endpoints, name, generation)); diff != "" {
		t.Errorf("after a rejection (-want +got):\n%s", diff)
	}
	c.ack(r)
	c.subscribe(endpoints, "barrier")
	c.next(endpoints)
	if got := s.Unacknowledged(endpoints, name, later); len(got) > 0 {
		t.Errorf("%v has acknowledged all", got)
	}
	for _, sub := range s.Subscribers() {
		if sub.Type == "endpoint" && (sub.Nacks != 1 || sub.NackMessage != "I cannot read it" || sub.NackedAt.IsZero()) {
			t.Errorf("subscriber %+v, want its rejection", sub)
		}
	}
	if got := metric(t, registry, "skipper_controller_xds_nacks_total", "endpoint"); got != 1 {
		t.Errorf("%v rejections counted, want 1", got)
	}
	said := logs.FilterFieldKey("said").All()
	if len(said) != 1 || said[0].ContextMap()["said"] != "I cannot read it" || said[0].ContextMap()["node"] != "envoy-1" {
		t.Errorf("log: %v", said)
	}
}

func TestHoldClosesStreamsAndRefusesNewOnes(t *testing.T) {
	s := server.New(server.Options{Shards: shards})
	s.Open()
	conn := start(t, s)
	c := connect(t, conn, "envoy")
	c.subscribe(clusters)
	c.next(clusters)
	s.Hold("watch is stale")
	for _, c := range []*raw{c, connect(t, conn, "envoy")} {
		if err := c.end(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "watch is stale") {
			t.Errorf("ended with %v", err)
		}
	}
	s.Apply(server.Change{Upsert: []server.Endpoint{pod("a", "10.0.0.1:80")}})
	s.Open()
	c = connect(t, conn, "envoy")
	c.subscribe(clusters)
	if got := len(c.next(clusters).GetResources()); got != 2*shards {
		t.Errorf("after Open %d clusters, want %d", got, 2*shards)
	}
}

func TestEndpointsFollowAChangedCluster(t *testing.T) {
	s := server.New(server.Options{Shards: 1})
	s.Apply(server.Change{Upsert: []server.Endpoint{pod("a", "10.0.0.1:80")}})
	s.Open()
	conn := start(t, s)
	const name = "skipper-http1-000"
	first := connect(t, conn, "envoy")
	first.subscribe(clusters)
	first.next(clusters)
	first.subscribe(endpoints, name)
	version := first.next(endpoints).GetResources()[0].GetVersion()

	// The same Envoy comes back with endpoints that are right and a cluster
	// that an older controller made.
	for _, order := range [][]string{{clusters, endpoints}, {endpoints, clusters}} {
		c := connect(t, conn, "envoy")
		claims := map[string]map[string]string{clusters: {name: "old"}, endpoints: {name: version}}
		for _, typeURL := range order {
			r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, InitialResourceVersions: claims[typeURL]}
			if typeURL == endpoints {
				r.ResourceNamesSubscribe = []string{name}
			}
			c.send(r)
			if typeURL == clusters {
				c.next(clusters)
			}
		}
		if diff := cmp.Diff([]string{name}, names(c.next(endpoints))); diff != "" {
			t.Errorf("order %v (-want +got):\n%s", order, diff)
		}
	}
}

func TestFunctionThatNobodyKnowsHasAnEmptyList(t *testing.T) {
	src := &source{}
	s := server.New(server.Options{Source: src})
	s.Open()
	c := connect(t, start(t, s), "extproc")
	c.subscribe(instances, "a/b/c")
	if diff := cmp.Diff(list("a/b/c", 0), read1(t, c.next(instances)), protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.Apply(server.Change{Instances: protoList(list("a/b/c", 5, "u1"), list("a/b/other", 5, "u2"))})
	if diff := cmp.Diff(list("a/b/c", 5, "u1"), read1(t, c.next(instances)), protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEqualInputIsNotPushed(t *testing.T) {
	src := &source{}
	src.set(list("a/b/c", 5, "u1", "u2"))
	s := server.New(server.Options{Source: src, Shards: shards})
	s.Apply(server.Change{Upsert: []server.Endpoint{pod("a", "10.0.0.1:80")}})
	s.Open()
	c := connect(t, start(t, s), "both")
	c.subscribe(instances, "a/b/c", "a/b/last")
	c.next(instances)
	c.subscribe(endpoints, "skipper-http1-000", "skipper-http1-001", "skipper-http1-002", "skipper-http1-003")
	c.next(endpoints)
	again := list("a/b/c", 9, "u2", "u1") // other order, other versions
	s.Apply(server.Change{Upsert: []server.Endpoint{pod("a", "10.0.0.1:80")}, Instances: protoList(again)})
	s.Apply(server.Change{Upsert: []server.Endpoint{pod("twin", "10.0.0.9:80")}, Remove: []string{"twin", "unknown"}})
	c.next(endpoints) // the twin came: it stands after the removal of the same step
	s.Apply(server.Change{Remove: []string{"nobody"}, Instances: protoList(list("a/b/last", 10, "u3"))})
	if got := read1(t, c.next(instances)); got.GetName() != "a/b/last" {
		t.Errorf("equal input was pushed: %v", got)
	}
}

// A subscriber may have heard elsewhere of an instance that a list without it
// would take from it, if it only came.
func TestEqualListIsSentAgainOnRequest(t *testing.T) {
	src := &source{}
	src.set(list("a/b/c", 5, "u1"))
	s := server.New(server.Options{Source: src, Shards: shards})
	s.Open()
	c := connect(t, start(t, s), "extproc")
	c.subscribe(instances, "a/b/c")
	c.next(instances)
	s.Apply(server.Change{Instances: protoList(list("a/b/c", 9, "u1"))})
	generation := s.Apply(server.Change{Instances: protoList(list("a/b/c", 9, "u1")), Again: map[string]bool{"a/b/c": true}})
	if got := s.Unacknowledged(instances, "a/b/c", generation); len(got) != 1 {
		t.Errorf("waiting for %v, want the subscriber", got)
	}
	if got := read1(t, c.next(instances)); got.GetVersion() != 9 {
		t.Errorf("version %d was sent, want 9", got.GetVersion())
	}
	s.Apply(server.Change{Instances: protoList(list("a/b/c", 9, "u1")), Again: map[string]bool{"a/b/c": true}})
	s.Apply(server.Change{Instances: protoList(list("a/b/c", 10, "u1"))})
	s.Apply(server.Change{Instances: protoList(list("a/b/c", 11, "u2"))})
	if got := read1(t, c.next(instances)); got.GetVersion() != 11 {
		t.Errorf("version %d was sent, want 11: nobody asked for 10", got.GetVersion())
	}
}

func TestListThatNobodyIsSubscribedToIsForgotten(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := server.New(server.Options{Source: &source{}, Registerer: registry})
	s.Open()
	conn := start(t, s)
	c := connect(t, conn, "extproc")
	c.subscribe(instances, "a/b/c", "a/b/d")
	c.next(instances)
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: instances, ResourceNamesUnsubscribe: []string{"a/b/c"}})
	c.subscribe(instances, "a/b/e") // answered after the request before it
	c.next(instances)
	s.Apply(server.Change{Instances: protoList(list("a/b/c", 3, "u1"))})
	if got := metric(t, registry, "skipper_controller_xds_resources", "instances"); got != 2 {
		t.Errorf("%v lists held, want 2", got)
	}
	c.subscribe(instances, "a/b/c")
	if got := read1(t, c.next(instances)); len(got.GetInstances()) > 0 {
		t.Errorf("the source knows nothing, but the server sent %v", got)
	}
}
