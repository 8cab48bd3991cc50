package loads

import (
	"fmt"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/proto"

	"skipper/xds"
)

// BenchmarkReport is what reading one report costs, each second for each Envoy:
// all clusters, and 5,000 endpoints at work.
func BenchmarkReport(b *testing.B) {
	r := message("envoy-1")
	for i := range 2 * xds.DefaultShards {
		p := []xds.Protocol{xds.HTTP1, xds.H2C}[i%2]
		c := cluster(xds.ClusterName(p, i/2), &endpointv3.UpstreamEndpointStats{})
		c.UpstreamLocalityStats[0].UpstreamEndpointStats = nil
		r.ClusterStats = append(r.ClusterStats, c)
	}
	for i := range 5_000 {
		l := r.ClusterStats[i%len(r.ClusterStats)].UpstreamLocalityStats[0]
		l.UpstreamEndpointStats = append(l.UpstreamEndpointStats, at(fmt.Sprintf("10.%d.%d.1", i/250, i%250), 8080, 3))
	}
	wire, err := proto.Marshal(r)
	if err != nil {
		b.Fatal(err)
	}
	n := clusterNames(xds.DefaultShards)
	b.ReportAllocs()
	for b.Loop() {
		var got loadstatsv3.LoadStatsRequest
		if err := proto.Unmarshal(wire, &got); err != nil {
			b.Fatal(err)
		}
		if busy, err := n.busy(&got); err != nil || len(busy) != 5_000 {
			b.Fatal(len(busy), err)
		}
	}
	b.ReportMetric(float64(len(wire)), "bytes")
}
