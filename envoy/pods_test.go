package envoy_test

import (
	"net"
	"strconv"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"skipper/envoy"
	"skipper/xds"
	"skipper/xds/resource"
)

// Clusters as the controllers make them: shard 0 of each family.
const (
	http1Cluster = "skipper-http1-000"
	h2cCluster   = "skipper-h2c-000"
	routed       = "-routed"
)

func protocolOf(cluster string) xds.Protocol {
	if cluster == h2cCluster {
		return xds.H2C
	}
	return xds.HTTP1
}

// publishPods gives a shard these hosts, and Envoy the shard and its routed cluster.
func (c *controlPlane) publishPods(t testing.TB, cluster string, addrs ...string) {
	t.Helper()
	p := protocolOf(cluster)
	c.publish(t, resource.Cluster(p, 0, resource.ClusterOptions{ConnectTimeout: ms(300)}), endpoints(t, cluster, addrs...))
	c.publishCluster(t, resource.Routed(p, 0))
}

func TestNamesAgreeWithTheControllers(t *testing.T) {
	t.Parallel()
	if envoy.SecondPassCluster != xds.SecondPassCluster {
		t.Errorf("the second pass is %q here and %q in routed clusters", envoy.SecondPassCluster, xds.SecondPassCluster)
	}
	if envoy.HeaderInstance != resource.HostMetadataKey || envoy.MetadataNamespace != resource.HostMetadataNamespace {
		t.Error("clusters look for the host elsewhere than extproc may write it")
	}
}

func endpoints(t testing.TB, cluster string, addrs ...string) *endpointv3.ClusterLoadAssignment {
	t.Helper()
	group := &endpointv3.LocalityLbEndpoints{}
	for _, addr := range addrs {
		host, text, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		group.LbEndpoints = append(group.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
				}}},
			}},
		})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: cluster, Endpoints: []*endpointv3.LocalityLbEndpoints{group}}
}
