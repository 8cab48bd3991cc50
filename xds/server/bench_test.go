package server

import (
	"fmt"
	"strconv"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverstream "github.com/envoyproxy/go-control-plane/pkg/server/stream/v3"
	"google.golang.org/protobuf/proto"

	skipperpb "skipper/proto"
	"skipper/xds"
)

func marshal(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// unmarshal is nil for what is no request.
func unmarshal(b []byte) *discoveryv3.DeltaDiscoveryRequest {
	r := &discoveryv3.DeltaDiscoveryRequest{}
	if proto.Unmarshal(b, r) != nil {
		return nil
	}
	return r
}

func benchPod(i int) Endpoint {
	return Endpoint{UID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), Addr: fmt.Sprintf("10.%d.%d.%d:8080", i>>16, i>>8&255, i&255), Protocol: xds.HTTP1}
}

// BenchmarkApplyOne is one endpoint that comes or goes, up to the encoded
// response of ten Envoys.
func BenchmarkApplyOne(b *testing.B) {
	for _, pods := range []int{1_000, 10_000, 50_000} {
		b.Run(strconv.Itoa(pods), func(b *testing.B) {
			s, peers := benchWorld(b, pods), []*peer(nil)
			for range 10 {
				peers = append(peers, benchPeer(b, s))
			}
			b.ReportAllocs()
			for b.Loop() {
				s.Apply(Change{Upsert: []Endpoint{benchPod(pods)}})
				benchFlush(b, s, peers)
				s.Apply(Change{Remove: []string{benchPod(pods).UID}})
				benchFlush(b, s, peers)
			}
		})
	}
}

// BenchmarkFirstBuild is the world of a fresh replica, fed pod by pod.
func BenchmarkFirstBuild(b *testing.B) {
	for _, pods := range []int{1_000, 10_000, 50_000} {
		b.Run(strconv.Itoa(pods), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				benchWorld(b, pods)
			}
		})
	}
}

func benchWorld(b *testing.B, pods int) *Server {
	b.Helper()
	s := New(Options{})
	for i := range pods {
		s.Apply(Change{Upsert: []Endpoint{benchPod(i)}})
	}
	s.Open()
	return s
}

// benchPeer is a stream that has everything.
func benchPeer(b *testing.B, s *Server) *peer {
	b.Helper()
	p, err := s.join(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	benchHandle(b, s, p, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resourcev3.ClusterType})
	names := make([]string, xds.DefaultShards)
	for i := range names {
		names[i] = xds.ClusterName(xds.HTTP1, i)
	}
	benchHandle(b, s, p, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resourcev3.EndpointType, ResourceNamesSubscribe: names})
	benchFlush(b, s, []*peer{p})
	return p
}

func benchHandle(b *testing.B, s *Server, p *peer, r *discoveryv3.DeltaDiscoveryRequest) {
	b.Helper()
	if err := s.handle(p, r); err != nil {
		b.Fatal(err)
	}
}

func benchFlush(b *testing.B, s *Server, peers []*peer) {
	b.Helper()
	for _, p := range peers {
		for r := s.next(p); r != nil; r = s.next(p) {
			marshal(b, r)
			benchHandle(b, s, p, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
		}
	}
}

const benchFunctions = 2_000

func benchName(i int) string { return "prod/echo/tenant-" + strconv.Itoa(i) }

// BenchmarkSubscribe is an extproc that subscribes to 2,000 functions one by one.
func BenchmarkSubscribe(b *testing.B) {
	for b.Loop() {
		s := New(Options{})
		s.Open()
		p, err := s.join(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		for i := range benchFunctions {
			benchHandle(b, s, p, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.InstancesTypeURL, ResourceNamesSubscribe: []string{benchName(i)}})
			benchFlush(b, s, []*peer{p})
		}
	}
}

// BenchmarkLinearCacheSubscribe is the same with go-control-plane's cache,
// without its server: the part that grows with the number of names.
func BenchmarkLinearCacheSubscribe(b *testing.B) {
	for b.Loop() {
		c := cache.NewLinearCache(xds.InstancesTypeURL)
		resources := map[string]types.Resource{}
		for i := range benchFunctions {
			resources[benchName(i)] = &skipperpb.FunctionInstances{Name: benchName(i)}
		}
		if err := c.UpdateResources(resources, nil); err != nil {
			b.Fatal(err)
		}
		sub, answers := serverstream.NewDeltaSubscription([]string{benchName(0)}, nil, nil, false), make(chan cache.DeltaResponse, 1)
		for i := range benchFunctions {
			r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.InstancesTypeURL, ResourceNamesSubscribe: []string{benchName(i)}}
			sub.UpdateResourceSubscriptions(r.GetResourceNamesSubscribe(), nil)
			if _, err := c.CreateDeltaWatch(r, sub, answers); err != nil {
				b.Fatal(err)
			}
			answer := <-answers
			sub.SetReturnedResources(answer.GetNextVersionMap())
			cancel, err := c.CreateDeltaWatch(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.InstancesTypeURL, ResponseNonce: "n"}, sub, answers)
			if err != nil {
				b.Fatal(err)
			}
			cancel()
		}
	}
}
