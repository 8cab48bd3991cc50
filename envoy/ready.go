package envoy

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/health_check/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const readyName = "ready"

// ready is the listener for probes and Prometheus. Like all listeners it opens
// once the controllers' first clusters and endpoints are there; it answers 503
// from the moment Envoy is told to fail health checks before it stops. It is
// not counted against the clients' connections.
func (b *builder) ready() *listenerv3.Listener {
	return &listenerv3.Listener{
		Name:                  readyName,
		Address:               listenAddress(everywhere, b.cfg.ReadyPort),
		IgnoreGlobalConnLimit: true,
		FilterChains: []*listenerv3.FilterChain{b.filterChain(&hcmv3.HttpConnectionManager{
			StatPrefix:        readyName,
			GenerateRequestId: wrapperspb.Bool(false),
			RouteSpecifier:    &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: readyRoutes()},
			HttpFilters:       []*hcmv3.HttpFilter{b.healthFilter(), b.router()},
		})},
	}
}

func (b *builder) healthFilter() *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{
		Name: "envoy.filters.http.health_check",
		ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: b.any(&healthv3.HealthCheck{
			PassThroughMode: wrapperspb.Bool(false),
			Headers:         []*routev3.HeaderMatcher{exactHeader(":path", "/ready")},
		})},
	}
}

// readyRoutes lets nothing but a GET of the metrics through to the admin interface.
func readyRoutes() *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{
		Name: readyName,
		VirtualHosts: []*routev3.VirtualHost{{
			Name: readyName, Domains: []string{"*"},
			Routes: []*routev3.Route{{
				Match: &routev3.RouteMatch{
					PathSpecifier: &routev3.RouteMatch_Path{Path: "/metrics"},
					Headers:       []*routev3.HeaderMatcher{exactHeader(":method", "GET")},
				},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: adminCluster},
					PrefixRewrite:    "/stats/prometheus",
				}},
			}},
		}},
	}
}

func exactHeader(name, value string) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
		StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: value}},
	}}
}
