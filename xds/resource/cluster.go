package resource

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	overridehostv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	randomv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	subsetv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/subset/v3"
	upstreamhttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"skipper/xds"
)

// Where extproc writes the addresses that a request may go to, as one string
// "ip:port,ip:port": dynamic metadata namespace and key.
const (
	HostMetadataNamespace = "envoy.lb"
	HostMetadataKey       = "x-skipper-instance"
)

// Timeouts of a cluster that ClusterOptions leaves zero.
const (
	DefaultConnectTimeout = time.Second
	// DefaultIdleTimeout is below the 5 s after which common servers close an
	// idle connection: a request on a connection that is being closed is lost
	// and may not be sent again.
	DefaultIdleTimeout = 4 * time.Second
)

// unlimited takes Envoy's circuit breakers (1024 by default) out of the way:
// Skipper bounds what is in progress itself.
const unlimited = 1_000_000

// httpOptionsName is the key under which Envoy looks for the protocol options.
const httpOptionsName = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// ClusterOptions are the timeouts of all clusters; zero means the default.
type ClusterOptions struct {
	// ConnectTimeout bounds the TCP connect to a pod.
	ConnectTimeout time.Duration
	// IdleTimeout closes connections to pods without a request for that long.
	IdleTimeout time.Duration
}

func (o ClusterOptions) withDefaults() ClusterOptions {
	if o.ConnectTimeout == 0 {
		o.ConnectTimeout = DefaultConnectTimeout
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = DefaultIdleTimeout
	}
	return o
}

// Cluster builds one shard of the family of protocol p. It picks only hosts
// that extproc has named in the request's metadata, whatever their health, and
// nothing without such a name. Any protocol but xds.H2C is HTTP/1.1.
//
// Endpoints come by EDS over the aggregated stream, without a limit on the
// first wait: the server always has them, and a limit would let Envoy replace
// a working cluster by an empty one when an update of it meets a restart.
func Cluster(p xds.Protocol, shard int, o ClusterOptions) *clusterv3.Cluster {
	o = o.withDefaults()
	return &clusterv3.Cluster{
		Name:                 xds.ClusterName(p, shard),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
			ResourceApiVersion:    corev3.ApiVersion_V3,
			InitialFetchTimeout:   durationpb.New(0),
		}},
		ConnectTimeout:      durationpb.New(o.ConnectTimeout),
		LoadBalancingPolicy: namedHostsOnly(),
		CircuitBreakers:     noLimits(),
		CommonLbConfig: &clusterv3.Cluster_CommonLbConfig{
			HealthyPanicThreshold: &typev3.Percent{Value: 0},
			UpdateMergeWindow:     durationpb.New(0),
		},
		UpstreamConnectionOptions:     noticeLostNodes(),
		TypedExtensionProtocolOptions: map[string]*anypb.Any{httpOptionsName: pack(httpOptions(p, o.IdleTimeout))},
	}
}

// namedHostsOnly is the override host policy over a subset policy that has no
// subset and no fallback, and so picks nothing by itself.
func namedHostsOnly() *clusterv3.LoadBalancingPolicy {
	nothing := policy("envoy.load_balancing_policies.subset", &subsetv3.Subset{
		FallbackPolicy:  subsetv3.Subset_NO_FALLBACK,
		SubsetSelectors: []*subsetv3.Subset_LbSubsetSelector{{Keys: []string{"never"}}},
		SubsetLbPolicy:  policy("envoy.load_balancing_policies.random", &randomv3.Random{}),
	})
	return policy("envoy.load_balancing_policies.override_host", &overridehostv3.OverrideHost{
		OverrideHostSources: []*overridehostv3.OverrideHost_OverrideHostSource{{Metadata: &metadatav3.MetadataKey{
			Key:  HostMetadataNamespace,
			Path: []*metadatav3.MetadataKey_PathSegment{{Segment: &metadatav3.MetadataKey_PathSegment_Key{Key: HostMetadataKey}}},
		}}},
		FallbackPolicy: nothing,
	})
}

func policy(name string, config proto.Message) *clusterv3.LoadBalancingPolicy {
	return &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: name, TypedConfig: pack(config)},
	}}}
}

func noLimits() *clusterv3.CircuitBreakers {
	n := wrapperspb.UInt32(unlimited)
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections: n, MaxPendingRequests: n, MaxRequests: n, MaxRetries: n,
	}}}
}

// noticeLostNodes ends connections to a pod whose node is gone within a
// minute. HTTP/2 pings would do it too, but many gRPC servers hang up on a
// client that pings more often than every five minutes.
func noticeLostNodes() *clusterv3.UpstreamConnectionOptions {
	return &clusterv3.UpstreamConnectionOptions{TcpKeepalive: &corev3.TcpKeepalive{
		KeepaliveTime: wrapperspb.UInt32(30), KeepaliveInterval: wrapperspb.UInt32(10), KeepaliveProbes: wrapperspb.UInt32(3),
	}}
}

func httpOptions(p xds.Protocol, idle time.Duration) *upstreamhttpv3.HttpProtocolOptions {
	explicit := &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig{
		ProtocolConfig: &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{HttpProtocolOptions: &corev3.Http1ProtocolOptions{
			EnableTrailers: true, // request trailers would be dropped on the way to the pod
		}},
	}
	if p == xds.H2C {
		explicit.ProtocolConfig = &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: &corev3.Http2ProtocolOptions{}}
	}
	return &upstreamhttpv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(idle)},
		UpstreamProtocolOptions:   &upstreamhttpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: explicit},
	}
}
