package envoy

import (
	"slices"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// Parts takes from a bootstrap what an Envoy that is there already has itself:
// node, admin interface, readiness, limits of the process and statistics. What
// is left is what such an Envoy needs to carry Skipper's traffic.
func Parts(b *bootstrapv3.Bootstrap) {
	b.Node, b.Admin, b.OverloadManager, b.StatsConfig = nil, nil, nil, nil
	static := b.StaticResources
	static.Listeners = slices.DeleteFunc(static.Listeners, func(l *listenerv3.Listener) bool { return l.GetName() == readyName })
	static.Clusters = slices.DeleteFunc(static.Clusters, func(c *clusterv3.Cluster) bool { return c.GetName() == adminCluster })
}
