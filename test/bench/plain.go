package main

import (
	"context"
	"math"
	"net/netip"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"skipper/envoy"
	"skipper/test/bench/internal/proc"
)

// plainEnvoy starts an Envoy that knows nothing of Skipper: one listener, one
// route, the backend.
func (f *field) plainEnvoy(ctx context.Context, backend, listen, admin string) (*contestant, error) {
	b, err := plainBootstrap(backend, listen, admin)
	if err != nil {
		return nil, err
	}
	text, err := envoy.YAML(b)
	if err != nil {
		return nil, err
	}
	p, err := f.envoy(ctx, "envoy-alone", text)
	if err != nil {
		return nil, err
	}
	return &contestant{name: "(a) the same Envoy without ext_proc", url: "http://" + listen + "/", cost: []*proc.Process{p}, admin: admin}, nil
}

func plainBootstrap(backend, listen, admin string) (*bootstrapv3.Bootstrap, error) {
	router, err := anypb.New(&routerv3.Router{})
	if err != nil {
		return nil, err
	}
	hcm, err := anypb.New(plainManager(router))
	if err != nil {
		return nil, err
	}
	return &bootstrapv3.Bootstrap{Admin: &bootstrapv3.Admin{Address: socket(admin)}, StaticResources: &bootstrapv3.Bootstrap_StaticResources{
		Listeners: []*listenerv3.Listener{{
			Name: "plain", Address: socket(listen),
			FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
				Name: "hcm", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: hcm},
			}}}},
		}},
		Clusters: []*clusterv3.Cluster{{
			Name: "backend", ConnectTimeout: durationpb.New(1e9), CircuitBreakers: noLimits(),
			LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: "backend", Endpoints: []*endpointv3.LocalityLbEndpoints{{
				LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: socket(backend)}}}},
			}}},
		}},
	}}, nil
}

// noLimits takes the circuit breakers away, which stop at 1,024 requests, as
// Skipper's clusters do.
func noLimits() *clusterv3.CircuitBreakers {
	n := wrapperspb.UInt32(math.MaxUint32)
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections: n, MaxPendingRequests: n, MaxRequests: n, MaxRetries: n,
	}}}
}

func plainManager(router *anypb.Any) proto.Message {
	return &hcmv3.HttpConnectionManager{
		StatPrefix: "plain", StreamIdleTimeout: durationpb.New(0),
		UpgradeConfigs: []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}},
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{VirtualHosts: []*routev3.VirtualHost{{
			Name: "all", Domains: []string{"*"},
			Routes: []*routev3.Route{{
				Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "backend"}, Timeout: durationpb.New(0)}},
			}},
		}}}},
		HttpFilters: []*hcmv3.HttpFilter{{Name: "envoy.filters.http.router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router}}},
	}
}

func socket(addr string) *corev3.Address {
	ap := netip.MustParseAddrPort(addr) // one of our own listeners
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: ap.Addr().String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(ap.Port())},
	}}}
}
