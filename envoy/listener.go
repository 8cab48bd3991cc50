package envoy

import (
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	ingressName = "ingress"
	hcmName     = "envoy.filters.network.http_connection_manager"
	routerName  = "envoy.filters.http.router"
	connect     = "connect"
)

// HTTP/2 towards clients. A stream's window is what Envoy may hold of a body
// that waits for an instance; the connection's is larger, so that a few held
// uploads do not stop the others on it.
const (
	maxStreams       = 1024
	streamWindow     = 256 << 10
	connectionWindow = 4 << 20
	// A client that vanished is noticed by its unanswered ping.
	clientPing        = 60 * time.Second
	clientPingTimeout = 20 * time.Second
)

// TCP keepalive towards clients, in seconds and probes: it ends requests of
// HTTP/1 clients that vanished, which StreamIdleTimeout would do much later.
const (
	keepaliveAfter  = 60
	keepaliveEvery  = 20
	keepaliveProbes = 3
)

// ingresses are the listeners for clients.
func (b *builder) ingresses() []*listenerv3.Listener {
	out := []*listenerv3.Listener{b.ingress(Listener{Name: ingressName, Port: b.cfg.HTTPPort})}
	for _, l := range b.cfg.Listeners {
		out = append(out, b.ingress(l))
	}
	return out
}

func (b *builder) ingress(l Listener) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name:                          l.Name,
		Address:                       listenAddress(b.cfg.HTTPAddress, l.Port),
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(b.cfg.BufferLimit),
		TcpKeepalive: &corev3.TcpKeepalive{
			KeepaliveTime:     wrapperspb.UInt32(keepaliveAfter),
			KeepaliveInterval: wrapperspb.UInt32(keepaliveEvery),
			KeepaliveProbes:   wrapperspb.UInt32(keepaliveProbes),
		},
		FilterChains: []*listenerv3.FilterChain{b.filterChain(b.connectionManager(l.Name))},
	}
}

func (b *builder) filterChain(m *hcmv3.HttpConnectionManager) *listenerv3.FilterChain {
	return &listenerv3.FilterChain{Filters: []*listenerv3.Filter{{
		Name:       hcmName,
		ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: b.any(m)},
	}}}
}

// connectionManager is for clients: what only we may say is removed, and what
// pods shall know about the client is added. All listeners for clients count
// into the same statistics, by which a gateway is drained.
func (b *builder) connectionManager(name string) *hcmv3.HttpConnectionManager {
	m := b.manager(name, b.routeConfiguration(name, b.forwardedHeaders()))
	m.StatPrefix = ingressName
	m.EarlyHeaderMutationExtensions = b.earlyMutations()
	m.UseRemoteAddress = wrapperspb.Bool(true)
	m.XffNumTrustedHops = b.cfg.TrustedHops
	m.RequestHeadersTimeout = durationpb.New(b.cfg.RequestHeadersTimeout)
	m.MaxRequestHeadersKb = wrapperspb.UInt32(b.cfg.MaxRequestHeadersKiB)
	m.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(b.cfg.ConnectionIdleTimeout)}
	m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{EnableTrailers: true, AcceptHttp_10: true}
	m.Http2ProtocolOptions = &corev3.Http2ProtocolOptions{
		AllowConnect:                true,
		MaxConcurrentStreams:        wrapperspb.UInt32(maxStreams),
		InitialStreamWindowSize:     wrapperspb.UInt32(streamWindow),
		InitialConnectionWindowSize: wrapperspb.UInt32(connectionWindow),
		ConnectionKeepalive:         &corev3.KeepaliveSettings{Interval: durationpb.New(clientPing), Timeout: durationpb.New(clientPingTimeout)},
	}
	return m
}

// manager is what the passes have in common. It passes requests on as they
// came: no path is normalised (no route depends on one), no request id is
// made, no server name is put in.
func (b *builder) manager(name string, routes *routev3.RouteConfiguration) *hcmv3.HttpConnectionManager {
	return &hcmv3.HttpConnectionManager{
		CodecType:                       hcmv3.HttpConnectionManager_AUTO,
		StatPrefix:                      name,
		RouteSpecifier:                  &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routes},
		HttpFilters:                     []*hcmv3.HttpFilter{b.extprocFilter(name), b.headerFilter(), b.misdirectedFilter(), b.router()},
		UpgradeConfigs:                  b.upgrades(),
		AccessLog:                       b.accessLog(name),
		LocalReplyConfig:                b.localReplies(),
		SkipXffAppend:                   true, // see forwardedHeaders
		GenerateRequestId:               wrapperspb.Bool(false),
		PreserveExternalRequestId:       true,
		NormalizePath:                   wrapperspb.Bool(false),
		ServerHeaderTransformation:      hcmv3.HttpConnectionManager_PASS_THROUGH,
		StreamErrorOnInvalidHttpMessage: wrapperspb.Bool(true),
		StreamIdleTimeout:               durationpb.New(b.cfg.StreamIdleTimeout),
		RequestTimeout:                  durationpb.New(0),
	}
}

func (b *builder) upgrades() []*hcmv3.HttpConnectionManager_UpgradeConfig {
	var out []*hcmv3.HttpConnectionManager_UpgradeConfig
	for _, u := range b.cfg.Upgrades {
		out = append(out, &hcmv3.HttpConnectionManager_UpgradeConfig{UpgradeType: u})
	}
	return out
}

// router adds none of the x-envoy-* headers that mean nothing to a pod.
func (b *builder) router() *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{
		Name:       routerName,
		ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: b.any(&routerv3.Router{SuppressEnvoyHeaders: true})},
	}
}

// routeConfiguration has one rule for everything: extproc answers what is not
// for a function. It is there twice, before and after extproc has picked and
// has the route looked up again, because Envoy takes the bound on a request's
// body in memory from the route: one that is held gets along with less.
func (b *builder) routeConfiguration(name string, add []*corev3.HeaderValueOption) *routev3.RouteConfiguration {
	var routes []*routev3.Route
	for _, match := range b.matches() {
		picked := proto.CloneOf(match)
		picked.Headers = []*routev3.HeaderMatcher{present(HeaderCluster)}
		r := b.podRoute(picked, add)
		r.RequestBodyBufferLimit = wrapperspb.UInt64(uint64(b.cfg.RetryBuffer))
		routes = append(routes, r, b.podRoute(match, add))
	}
	out := &routev3.RouteConfiguration{
		Name: name,
		VirtualHosts: []*routev3.VirtualHost{{
			Name: "functions", Domains: []string{"*"}, Routes: routes, IncludeRequestAttemptCount: true,
		}},
	}
	keepReasonsOfPasses(out)
	return out
}

// matches hold for every request: CONNECT has no path.
func (b *builder) matches() []*routev3.RouteMatch {
	out := []*routev3.RouteMatch{{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}}
	if b.allowsConnect() {
		out = append(out, &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_ConnectMatcher_{ConnectMatcher: &routev3.RouteMatch_ConnectMatcher{}}})
	}
	return out
}

func present(name string) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}}
}

func (b *builder) allowsConnect() bool {
	for _, u := range b.cfg.Upgrades {
		if strings.EqualFold(u, connect) {
			return true
		}
	}
	return false
}

// podRoute sends to the cluster that extproc named, and from there, if need
// be, to the next pass.
func (b *builder) podRoute(match *routev3.RouteMatch, add []*corev3.HeaderValueOption) *routev3.Route {
	return &routev3.Route{
		Match: match,
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier:            &routev3.RouteAction_ClusterHeader{ClusterHeader: HeaderCluster},
			ClusterNotFoundResponseCode: routev3.RouteAction_SERVICE_UNAVAILABLE,
			Timeout:                     durationpb.New(0),
			RetryPolicy:                 retryPolicy(),
		}},
		RequestHeadersToAdd:    add,
		RequestHeadersToRemove: []string{HeaderCluster, "x-envoy-external-address", "x-envoy-internal"},
	}
}
