package envoy_test

import (
	"net"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
)

// controlPlane stands in for a controller: delta xDS of clusters and endpoints.
type controlPlane struct {
	clusters, endpoints *cache.LinearCache
	addr                string
	server              *grpc.Server
	xds                 serverv3.Server
}

// startControlPlane serves xDS and what more adds to it, if anything.
func startControlPlane(t testing.TB, more ...func(*grpc.Server)) *controlPlane {
	t.Helper()
	c := &controlPlane{
		clusters:  cache.NewLinearCache(resourcev3.ClusterType),
		endpoints: cache.NewLinearCache(resourcev3.EndpointType),
		server:    grpc.NewServer(),
	}
	mux := &cache.MuxCache{
		Classify:      func(r *cache.Request) string { return r.GetTypeUrl() },
		ClassifyDelta: func(r *cache.DeltaRequest) string { return r.GetTypeUrl() },
		Caches:        map[string]cache.Cache{resourcev3.ClusterType: c.clusters, resourcev3.EndpointType: c.endpoints},
	}
	c.xds = serverv3.NewServer(t.Context(), mux, nil)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(c.server, c.xds)
	for _, add := range more {
		add(c.server)
	}
	c.addr = serve(t, c.server, "tcp", "127.0.0.1:0")
	return c
}

func (c *controlPlane) publish(t testing.TB, cluster *clusterv3.Cluster, hosts *endpointv3.ClusterLoadAssignment) {
	t.Helper()
	if err := c.endpoints.UpdateResource(hosts.GetClusterName(), types.Resource(hosts)); err != nil {
		t.Fatalf("publish endpoints: %v", err)
	}
	c.publishCluster(t, cluster)
}

func (c *controlPlane) publishCluster(t testing.TB, cluster *clusterv3.Cluster) {
	t.Helper()
	if err := c.clusters.UpdateResource(cluster.GetName(), types.Resource(cluster)); err != nil {
		t.Fatalf("publish cluster: %v", err)
	}
}

// serve runs s until the end of the test and returns where it listens.
func serve(t testing.TB, s *grpc.Server, network, address string) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatalf("listen on %s: %v", address, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // ends with Stop
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return l.Addr().String()
}
