package server

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	gocmp "github.com/google/go-cmp/cmp"

	"skipper/xds"
	"skipper/xds/resource"
)

const testShards = 4

// rebuilt makes all clusters and endpoints from scratch: every family that is
// in use or was within the linger time, with all its shards.
func rebuilt(pods map[string]Endpoint, families map[xds.Protocol]bool) map[string]string {
	out := map[string]string{}
	for p := range families {
		for i := range testShards {
			name := xds.ClusterName(p, i)
			var members []Endpoint
			for _, e := range pods {
				if xds.ShardClusterOf(e.Protocol, e.UID, testShards) == name {
					members = append(members, e)
				}
			}
			c, _ := resource.Encode(name, resource.Cluster(p, i, resource.ClusterOptions{}))
			a, _ := resource.Encode(name, resource.LoadAssignment(name, members))
			routed, _ := resource.Encode("", resource.Routed(p, i))
			out[resourcev3.ClusterType+" "+name] = c.GetVersion()
			out[resourcev3.ClusterType+" "+xds.RoutedName(p, i)] = routed.GetVersion()
			out[resourcev3.EndpointType+" "+name] = a.GetVersion()
		}
	}
	return out
}

func published(s *Server) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for _, t := range s.order {
		for name, e := range t.entries {
			out[t.url+" "+name] = e.resource.GetVersion()
		}
	}
	return out
}

// TestApplyAgreesWithANaiveRebuild applies random changes, some before Open,
// and compares what is published with a rebuild from a plain map.
func TestApplyAgreesWithANaiveRebuild(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := New(Options{Shards: testShards, FamilyLinger: -1})
		pods := map[string]Endpoint{}
		for step := range 40 {
			c := randomChange(r)
			s.Apply(c)
			replay(pods, c)
			if step == 5 {
				s.Open()
			}
			if step < 5 {
				continue
			}
			families := map[xds.Protocol]bool{}
			for _, e := range pods {
				families[e.Protocol] = true
			}
			if diff := gocmp.Diff(rebuilt(pods, families), published(s)); diff != "" {
				t.Fatalf("seed %d, step %d (-want +got):\n%s", seed, step, diff)
			}
		}
	}
}

func randomChange(r *rand.Rand) Change {
	var c Change
	for range r.IntN(5) {
		c.Remove = append(c.Remove, fmt.Sprintf("pod-%d", r.IntN(10)))
	}
	for range r.IntN(4) {
		c.Upsert = append(c.Upsert, Endpoint{
			UID:      fmt.Sprintf("pod-%d", r.IntN(10)),
			Addr:     []string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.2:81", "no address"}[r.IntN(4)],
			Protocol: []xds.Protocol{xds.HTTP1, xds.H2C}[r.IntN(2)],
		})
	}
	return c
}

func replay(pods map[string]Endpoint, c Change) {
	for _, uid := range c.Remove {
		delete(pods, uid)
	}
	for _, e := range c.Upsert {
		if delete(pods, e.UID); e.Validate() == nil {
			pods[e.UID] = e
		}
	}
}

func TestAddressStaysUntilItsLastPodLeaves(t *testing.T) {
	s := New(Options{Shards: 1})
	s.Open()
	old, next := Endpoint{UID: "old", Addr: "10.0.0.1:80", Protocol: xds.HTTP1}, Endpoint{UID: "new", Addr: "10.0.0.1:80", Protocol: xds.HTTP1}
	for _, step := range []struct {
		change Change
		want   []Endpoint
	}{
		{Change{Upsert: []Endpoint{old}}, []Endpoint{old}},
		{Change{Upsert: []Endpoint{next}}, []Endpoint{next}},
		{Change{Remove: []string{"old"}}, []Endpoint{next}},
		{Change{Remove: []string{"new"}}, nil},
	} {
		s.Apply(step.change)
		want, _ := resource.Encode("", resource.LoadAssignment("skipper-http1-000", step.want))
		got := published(s)[resourcev3.EndpointType+" skipper-http1-000"]
		if got != want.GetVersion() {
			t.Errorf("after %+v: another assignment than that of %v", step.change, step.want)
		}
	}
}

func TestFamilyLingersAfterItsLastPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Shards: testShards})
		s.Open()
		s.Apply(Change{Upsert: []Endpoint{{UID: "a", Addr: "10.0.0.1:80", Protocol: xds.H2C}}})
		s.Apply(Change{Remove: []string{"a"}})
		if got := len(published(s)); got != 3*testShards {
			t.Errorf("%d resources just after the last pod, want %d", got, 3*testShards)
		}
		<-time.After(DefaultFamilyLinger)
		s.Apply(Change{})
		if got := len(published(s)); got != 0 {
			t.Errorf("%d resources after the linger time, want none", got)
		}
	})
}

func TestGenerationGrowsOnlyWithChanges(t *testing.T) {
	s := New(Options{Shards: testShards})
	s.Open()
	e := Endpoint{UID: "a", Addr: "10.0.0.1:80", Protocol: xds.HTTP1}
	got := []uint64{s.Apply(Change{}), s.Apply(Change{Upsert: []Endpoint{e}}), s.Apply(Change{Upsert: []Endpoint{e}}), s.Apply(Change{Remove: []string{"a"}})}
	if !slices.IsSortedFunc(got, cmp.Compare[uint64]) || got[1] <= got[0] || got[2] != got[1] || got[3] <= got[2] {
		t.Errorf("generations %v", got)
	}
}

// FuzzRequest handles a request of any bytes on a stream of its own.
func FuzzRequest(f *testing.F) {
	for _, r := range []*discoveryv3.DeltaDiscoveryRequest{
		{TypeUrl: resourcev3.ClusterType},
		{TypeUrl: xds.InstancesTypeURL, ResourceNamesSubscribe: []string{"a/b/c"}, InitialResourceVersions: map[string]string{"a/b/c": "1"}},
		{TypeUrl: resourcev3.EndpointType, ResourceNamesSubscribe: []string{"*", "x"}, ResourceNamesUnsubscribe: []string{"*"}},
	} {
		f.Add(marshal(f, r), marshal(f, r))
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		s := New(Options{Shards: testShards})
		s.Apply(Change{Upsert: []Endpoint{{UID: "a", Addr: "10.0.0.1:80", Protocol: xds.HTTP1}}})
		s.Open()
		p, err := s.join(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range [][]byte{one, two} {
			if r := unmarshal(b); r == nil || s.handle(p, r) != nil {
				break
			}
			s.next(p)
		}
		s.leave(p)
		for _, tab := range s.order {
			for name, e := range tab.entries {
				if len(e.peers) > 0 || (e.resource == nil && !e.pending) || tab.onDemand {
					t.Errorf("%s %q is left behind", tab.label, name)
				}
			}
		}
	})
}
