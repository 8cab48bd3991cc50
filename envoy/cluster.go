package envoy

import (
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	dnscommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/common/dns/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Names of the clusters that every gateway has.
const (
	// ExtprocCluster leads to extproc.
	ExtprocCluster = "extproc"
	// ControllerCluster leads to the controllers' xDS and load reporting services.
	ControllerCluster = "skipper-controllers"
	adminCluster      = "admin"
)

// httpOptions is the key of a cluster's HTTP options.
const httpOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

const (
	extprocConnect    = 500 * time.Millisecond
	controllerConnect = time.Second
	// A controller that died without closing its connection is noticed at the
	// latest after pingInterval (Envoy adds up to 15 %) + pingTimeout, which
	// leaves time for another one within the second. Envoy sends the next ping
	// only when the last was answered. Servers must allow pings that frequent.
	// Any frame counts as an answer, so a slow world does not end its connection.
	pingInterval = 300 * time.Millisecond
	pingTimeout  = 500 * time.Millisecond
	// New controller pods are found, and dead ones forgotten, within dnsRefresh,
	// whatever the time to live says; a cluster's DNS may add its own 5 s.
	dnsRefresh = time.Second
	// A lost xDS stream is opened again after a random time that grows from
	// the first to the second.
	xdsBackoff    = 100 * time.Millisecond
	xdsBackoffMax = 2 * time.Second
)

// unlimited stands for "no circuit breaker": the default of 1024 counts open
// streams, and one stream is held per request.
const unlimited = 1_000_000

func (b *builder) extprocCluster() *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                          ExtprocCluster,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:                durationpb.New(extprocConnect),
		CircuitBreakers:               noCircuitBreaker(),
		TypedExtensionProtocolOptions: b.http2(&corev3.Http2ProtocolOptions{}),
		LoadAssignment:                oneEndpoint(ExtprocCluster, b.place(b.cfg.Extproc)),
	}
}

func (b *builder) controllers() *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name: ControllerCluster,
		ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name: "envoy.cluster.dns",
			TypedConfig: b.any(&dnsv3.DnsCluster{
				DnsRefreshRate:  durationpb.New(dnsRefresh),
				DnsLookupFamily: dnscommonv3.DnsLookupFamily_ALL,
				DnsFailureRefreshRate: &dnsv3.DnsCluster_RefreshRate{
					BaseInterval: durationpb.New(200 * time.Millisecond), MaxInterval: durationpb.New(dnsRefresh),
				},
			}),
		}},
		ConnectTimeout:  durationpb.New(controllerConnect),
		CircuitBreakers: noCircuitBreaker(),
		TransportSocket: b.controllerTLS(),
		TypedExtensionProtocolOptions: b.http2(&corev3.Http2ProtocolOptions{
			ConnectionKeepalive: &corev3.KeepaliveSettings{Interval: durationpb.New(pingInterval), Timeout: durationpb.New(pingTimeout)},
		}),
		LoadAssignment: oneEndpoint(ControllerCluster, socketAddress(b.cfg.ControllerHost, b.cfg.ControllerPort)),
	}
}

// adminCluster serves the ready listener's /metrics.
func (b *builder) adminCluster() *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 adminCluster,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(time.Second),
		LoadAssignment:       oneEndpoint(adminCluster, b.place(b.cfg.Admin)),
	}
}

func (b *builder) http2(o *corev3.Http2ProtocolOptions) map[string]*anypb.Any {
	return map[string]*anypb.Any{httpOptions: b.any(&httpv3.HttpProtocolOptions{
		UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: o},
			},
		},
	})}
}

func noCircuitBreaker() *clusterv3.CircuitBreakers {
	n := wrapperspb.UInt32(unlimited)
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections: n, MaxPendingRequests: n, MaxRequests: n, MaxRetries: n,
	}}}
}

func oneEndpoint(cluster string, a *corev3.Address) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{
		ClusterName: cluster,
		Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: a}},
		}}}},
	}
}

// dynamic takes clusters, and through them endpoints, from the controllers
// over one delta stream.
func (b *builder) dynamic() *bootstrapv3.Bootstrap_DynamicResources {
	return &bootstrapv3.Bootstrap_DynamicResources{
		AdsConfig: &corev3.ApiConfigSource{
			ApiType:                   corev3.ApiConfigSource_DELTA_GRPC,
			TransportApiVersion:       corev3.ApiVersion_V3,
			SetNodeOnFirstMessageOnly: true,
			GrpcServices:              []*corev3.GrpcService{controllerService()},
		},
		CdsConfig: &corev3.ConfigSource{
			ResourceApiVersion:    corev3.ApiVersion_V3,
			InitialFetchTimeout:   durationpb.New(b.cfg.ControllerWait),
			ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		},
	}
}

func (b *builder) clusterManager() *bootstrapv3.ClusterManager {
	if !b.cfg.LoadReports {
		return nil
	}
	return &bootstrapv3.ClusterManager{LoadStatsConfig: &corev3.ApiConfigSource{
		ApiType:             corev3.ApiConfigSource_GRPC,
		TransportApiVersion: corev3.ApiVersion_V3,
		GrpcServices:        []*corev3.GrpcService{controllerService()},
	}}
}

func controllerService() *corev3.GrpcService {
	return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
		ClusterName: ControllerCluster,
		RetryPolicy: &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
			BaseInterval: durationpb.New(xdsBackoff), MaxInterval: durationpb.New(xdsBackoffMax),
		}},
	}}}
}
