package resource

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	compositev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/composite/v3"

	"skipper/xds"
)

// Routed builds the cluster to which requests for pods of a shard are routed.
// The first attempt goes to the shard. When the shard does not know the host
// that extproc named, the same attempt goes to the second pass instead; when
// the host was tried and failed, the second attempt does. There extproc picks
// again, and its answer leads to a routed cluster again.
//
// It holds no endpoints, so an update of those costs no more for it. Envoy
// counts retries against the circuit breaker of this cluster, not the shard's.
func Routed(p xds.Protocol, shard int) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:     xds.RoutedName(p, shard),
		LbPolicy: clusterv3.Cluster_CLUSTER_PROVIDED,
		ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name: "envoy.clusters.composite",
			TypedConfig: pack(&compositev3.ClusterConfig{Clusters: []*compositev3.ClusterConfig_ClusterEntry{
				{Name: xds.ClusterName(p, shard)}, {Name: xds.SecondPassCluster},
			}}),
		}},
		CircuitBreakers: noLimits(),
	}
}
