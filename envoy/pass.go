package envoy

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	internalv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/bootstrap/internal_listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// SecondPassCluster leads to the second pass. The controllers' routed clusters
// name it, so it is part of what both sides agree on (skipper/xds).
const SecondPassCluster = "skipper-second-pass"

const secondPassName = "second_pass"

const (
	// A pass has one attempt for the picked pod and one for the next pass, so
	// passes add up and never multiply.
	retriesPerPass = 1
	// Another pod answers the next attempt, so there is nothing to wait for.
	retryBackoff    = time.Millisecond
	retryBackoffMax = 2 * time.Millisecond
	// retryOn names what proves that the pod has not begun to work: no
	// connection, an HTTP/2 refusal, a reset before the request was sent.
	retryOn = "connect-failure,refused-stream,reset-before-request,retriable-headers"
)

// Room for what the first pass adds to a request, and a pass to an answer, so
// that nothing that passed once is too large the second time.
const (
	extraHeadersKiB  = 16
	passHeaders      = 200 // Envoy's default is 100, which holds for the first pass
	passAnswerKiB    = 96  // Envoy's default for answers of pods is 60
	passIdle         = 30 * time.Second
	passConnect      = time.Second
	fromPass         = "x-skipper-from-pass"
	metadataOfPasses = "skipper"
	metadataKey      = "pass"
)

// retryPolicy sends what no pod has begun to work on to the next pass.
func retryPolicy() *routev3.RetryPolicy {
	return &routev3.RetryPolicy{
		RetryOn:          retryOn,
		NumRetries:       wrapperspb.UInt32(retriesPerPass),
		RetriableHeaders: []*routev3.HeaderMatcher{present(HeaderMisdirected)},
		RetryBackOff: &routev3.RetryPolicy_RetryBackOff{
			BaseInterval: durationpb.New(retryBackoff), MaxInterval: durationpb.New(retryBackoffMax),
		},
	}
}

// secondPass is the listener in which a request goes on that the pod of the
// pass before did not take. Only this Envoy can connect to it.
func (b *builder) secondPass() *listenerv3.Listener {
	return &listenerv3.Listener{
		Name: secondPassName,
		ListenerSpecifier: &listenerv3.Listener_InternalListener{
			InternalListener: &listenerv3.Listener_InternalListenerConfig{},
		},
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(b.cfg.BufferLimit),
		IgnoreGlobalConnLimit:         true,
		FilterChains:                  []*listenerv3.FilterChain{b.filterChain(b.passManager())},
	}
}

// passManager trusts every header: the first pass has cleaned and set them. So
// nothing is removed, appended or guessed here.
func (b *builder) passManager() *hcmv3.HttpConnectionManager {
	m := b.manager(secondPassName, b.passRoutes())
	m.UseRemoteAddress = wrapperspb.Bool(false)
	m.MaxRequestHeadersKb = wrapperspb.UInt32(min(b.cfg.MaxRequestHeadersKiB+extraHeadersKiB, maxHeadersKiB))
	m.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{
		IdleTimeout:     durationpb.New(0), // the cluster closes first
		MaxHeadersCount: wrapperspb.UInt32(passHeaders),
	}
	m.HttpProtocolOptions = &corev3.Http1ProtocolOptions{EnableTrailers: true}
	m.Http2ProtocolOptions = passHTTP2()
	return m
}

// passHTTP2 is spoken between two passes of a request that came by HTTP/2. The
// hops of all passes share a connection, so its window has room for every
// stream's: with less, streams that a pass holds could fill it, and wait for
// ever for the next pass, which has none left to take their bodies.
func passHTTP2() *corev3.Http2ProtocolOptions {
	return &corev3.Http2ProtocolOptions{
		AllowConnect:                true,
		MaxConcurrentStreams:        wrapperspb.UInt32(maxStreams),
		InitialStreamWindowSize:     wrapperspb.UInt32(streamWindow),
		InitialConnectionWindowSize: wrapperspb.UInt32(maxStreams * streamWindow),
	}
}

// passRoutes leads to the cluster that extproc named, in every pass.
func (b *builder) passRoutes() *routev3.RouteConfiguration {
	return b.routeConfiguration(secondPassName, nil)
}

// passCluster connects a pass with the next. A pass uses the protocol of the
// client, so an HTTP/1 request has a connection of its own in each.
func (b *builder) passCluster() *clusterv3.Cluster {
	assignment := oneEndpoint(SecondPassCluster, &corev3.Address{Address: &corev3.Address_EnvoyInternalAddress{
		EnvoyInternalAddress: &corev3.EnvoyInternalAddress{
			AddressNameSpecifier: &corev3.EnvoyInternalAddress_ServerListenerName{ServerListenerName: secondPassName},
		},
	}})
	assignment.Endpoints[0].LbEndpoints[0].Metadata = passMetadata()
	return &clusterv3.Cluster{
		Name:                          SecondPassCluster,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:                durationpb.New(passConnect),
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(b.cfg.BufferLimit),
		CircuitBreakers:               noCircuitBreaker(),
		TypedExtensionProtocolOptions: map[string]*anypb.Any{httpOptions: b.any(passOptions())},
		LoadAssignment:                assignment,
	}
}

func passOptions() *httpv3.HttpProtocolOptions {
	return &httpv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{
			IdleTimeout:          durationpb.New(passIdle),
			MaxHeadersCount:      wrapperspb.UInt32(passHeaders),
			MaxResponseHeadersKb: wrapperspb.UInt32(passAnswerKiB),
		},
		UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig{
			UseDownstreamProtocolConfig: &httpv3.HttpProtocolOptions_UseDownstreamHttpConfig{
				HttpProtocolOptions:  &corev3.Http1ProtocolOptions{EnableTrailers: true},
				Http2ProtocolOptions: passHTTP2(),
			},
		},
	}
}

// passMetadata marks the endpoint of the second pass, so that an answer of a
// pass can be told from one of a pod: see answersOfPasses.
func passMetadata() *corev3.Metadata {
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
		metadataOfPasses: {Fields: map[string]*structpb.Value{metadataKey: structpb.NewStringValue("yes")}},
	}}
}

// internalListeners lets listeners be reached from within only.
func (b *builder) internalListeners() []*corev3.TypedExtensionConfig {
	return []*corev3.TypedExtensionConfig{{
		Name:        "envoy.bootstrap.internal_listener",
		TypedConfig: b.any(&internalv3.InternalListener{}),
	}}
}
