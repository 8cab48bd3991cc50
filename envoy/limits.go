package envoy

import (
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	connectionsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// podClusters is how the names of the pods' clusters begin, in both families
// (skipper/xds names them).
func podClusters() []string { return []string{"skipper-http1-", "skipper-h2c-"} }

func (b *builder) overload() *overloadv3.OverloadManager {
	return &overloadv3.OverloadManager{ResourceMonitors: []*overloadv3.ResourceMonitor{{
		Name: "envoy.resource_monitors.global_downstream_max_connections",
		ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: b.any(&connectionsv3.DownstreamConnectionsConfig{
			MaxActiveDownstreamConnections: int64(b.cfg.MaxConnections),
		})},
	}}}
}

// stats leaves out the statistics of the pods' clusters, which nobody can read
// by function anyway: a shard mixes tenants.
func (b *builder) stats() *metricsv3.StatsConfig {
	if b.cfg.ClusterStats {
		return nil
	}
	excluded := &matcherv3.ListStringMatcher{}
	for _, name := range podClusters() {
		excluded.Patterns = append(excluded.Patterns, &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "cluster." + name},
		})
	}
	return &metricsv3.StatsConfig{StatsMatcher: &metricsv3.StatsMatcher{
		StatsMatcher: &metricsv3.StatsMatcher_ExclusionList{ExclusionList: excluded},
	}}
}
