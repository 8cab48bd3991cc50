package main

import (
	"context"
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

	"skipper/envoy"
	"skipper/test/bench/internal/proc"
)

// plainEnvoy starts an Envoy that knows nothing of Skipper: one listener, one
// route, the backend.
func (f *field) plainEnvoy(ctx context.Context, backend, listen string) (*contestant, error) {
	b, err := plainBootstrap(backend, listen)
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
	return &contestant{name: "(a) the same Envoy without ext_proc", url: "http://" + listen + "/", cost: []*proc.Process{p}}, nil
}

func plainBootstrap(backend, listen string) (*bootstrapv3.Bootstrap, error) {
	router, err := anypb.New(&routerv3.Router{})
	if err != nil {
		return nil, err
	}
	hcm, err := anypb.New(plainManager(router))
	if err != nil {
		return nil, err
	}
	return &bootstrapv3.Bootstrap{StaticResources: &bootstrapv3.Bootstrap_StaticResources{
		Listeners: []*listenerv3.Listener{{
			Name: "plain", Address: socket(listen),
			FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
				Name: "hcm", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: hcm},
			}}}},
		}},
		Clusters: []*clusterv3.Cluster{{
			Name: "backend", ConnectTimeout: durationpb.New(1e9),
			LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: "backend", Endpoints: []*endpointv3.LocalityLbEndpoints{{
				LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: socket(backend)}}}},
			}}},
		}},
	}}, nil
}

func plainManager(router *anypb.Any) proto.Message {
	return &hcmv3.HttpConnectionManager{
		StatPrefix: "plain",
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
