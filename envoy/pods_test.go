package envoy_test

import (
	"net"
	"strconv"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	overridev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	randomv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	subsetv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/subset/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"skipper/envoy"
)

// Clusters as the controllers make them, one per family and a spare.
const (
	http1Cluster = "skipper-http1-000"
	h2cCluster   = "skipper-h2c-000"
)

func pack(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	out, err := anypb.New(m)
	if err != nil {
		t.Fatalf("pack %T: %v", m, err)
	}
	return out
}

func policy(t testing.TB, name string, m proto.Message) *clusterv3.LoadBalancingPolicy {
	t.Helper()
	return &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: name, TypedConfig: pack(t, m)},
	}}}
}

// onlyChosenHost goes where the metadata says, or nowhere.
func onlyChosenHost(t testing.TB) *clusterv3.LoadBalancingPolicy {
	t.Helper()
	return policy(t, "envoy.load_balancing_policies.override_host", &overridev3.OverrideHost{
		OverrideHostSources: []*overridev3.OverrideHost_OverrideHostSource{{Metadata: &metadatav3.MetadataKey{
			Key: envoy.MetadataNamespace,
			Path: []*metadatav3.MetadataKey_PathSegment{{
				Segment: &metadatav3.MetadataKey_PathSegment_Key{Key: envoy.HeaderInstance},
			}},
		}}},
		FallbackPolicy: policy(t, "envoy.load_balancing_policies.subset", &subsetv3.Subset{
			FallbackPolicy:  subsetv3.Subset_NO_FALLBACK,
			SubsetSelectors: []*subsetv3.Subset_LbSubsetSelector{{Keys: []string{"never"}}},
			SubsetLbPolicy:  policy(t, "envoy.load_balancing_policies.random", &randomv3.Random{}),
		}),
	})
}

func podCluster(t testing.TB, name string, options *httpv3.HttpProtocolOptions_ExplicitHttpConfig) *clusterv3.Cluster {
	t.Helper()
	limit := wrapperspb.UInt32(1_000_000)
	return &clusterv3.Cluster{
		Name:                          name,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		ConnectTimeout:                durationpb.New(time.Second),
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(256 << 10),
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
			ResourceApiVersion:    corev3.ApiVersion_V3,
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		}},
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
			MaxConnections: limit, MaxPendingRequests: limit, MaxRequests: limit, MaxRetries: limit,
		}}},
		LoadBalancingPolicy: onlyChosenHost(t),
		TypedExtensionProtocolOptions: map[string]*anypb.Any{
			"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": pack(t, &httpv3.HttpProtocolOptions{
				UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: options},
			}),
		},
	}
}

func http1() *httpv3.HttpProtocolOptions_ExplicitHttpConfig {
	return &httpv3.HttpProtocolOptions_ExplicitHttpConfig{ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
		HttpProtocolOptions: &corev3.Http1ProtocolOptions{EnableTrailers: true},
	}}
}

func h2c() *httpv3.HttpProtocolOptions_ExplicitHttpConfig {
	return &httpv3.HttpProtocolOptions_ExplicitHttpConfig{ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
		Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
	}}
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
