package envoy

import (
	"time"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// MetadataNamespace is the dynamic metadata that extproc may set and from
// which a cluster's load balancer reads the host.
const MetadataNamespace = "envoy.lb"

// FunctionMetadata is the dynamic metadata in which extproc names the function
// of a request, for the access log.
const FunctionMetadata = "skipper"

// holdMargin is how much longer than its hold time extproc may take to answer.
const holdMargin = 5 * time.Second

// ListenerMetadata names the listener of a request in the metadata of its
// ext_proc stream; extproc knows it by the same name.
const ListenerMetadata = "x-skipper-listener"

// forwardedToExtproc lists all that extproc reads; more would only cost time.
func (b *builder) forwardedToExtproc() []string {
	out := []string{
		":path", ":method", HeaderFunction, HeaderRequest,
		"x-envoy-attempt-count", "grpc-timeout", "x-envoy-expected-rq-timeout-ms",
	}
	if b.cfg.ForwardTrace {
		out = append(out, "traceparent", "tracestate")
	}
	return out
}

// extprocFilter holds one stream per request, from its headers to its end, so
// that extproc knows what is in progress. If extproc dies, what runs goes on;
// what it had not answered has no cluster and gets 503 at once.
func (b *builder) extprocFilter(listener string) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{
		Name: "envoy.filters.http.ext_proc",
		ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: b.any(&filterv3.ExternalProcessor{
			GrpcService:       b.extprocService(listener),
			FailureModeAllow:  true,
			ProcessingMode:    processingMode(),
			MessageTimeout:    durationpb.New(b.cfg.MessageTimeout),
			MaxMessageTimeout: durationpb.New(b.cfg.HoldTimeout + holdMargin),
			StatusOnError:     &typev3.HttpStatus{Code: typev3.StatusCode_ServiceUnavailable},
			ForwardRules:      &filterv3.HeaderForwardingRules{AllowedHeaders: exactly(b.forwardedToExtproc())},
			MutationRules:     mutationRules(),
			MetadataOptions: &filterv3.MetadataOptions{
				ReceivingNamespaces: &filterv3.MetadataOptions_MetadataNamespaces{Untyped: b.received()},
			},
			EmitClientSpan: wrapperspb.Bool(false),
		})},
	}
}

// extprocService tells extproc the listener, if there is more than one.
func (b *builder) extprocService(listener string) *corev3.GrpcService {
	out := &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
		EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: ExtprocCluster},
	}}
	if len(b.cfg.Listeners) > 0 {
		out.InitialMetadata = []*corev3.HeaderValue{{Key: ListenerMetadata, Value: listener}}
	}
	return out
}

// received is the metadata that is taken from extproc.
func (b *builder) received() []string {
	if b.cfg.AccessLog == AccessLogOff {
		return []string{MetadataNamespace}
	}
	return []string{MetadataNamespace, FunctionMetadata}
}

// processingMode keeps the stream open without being asked anything more: the
// response trailers come last, or never.
func processingMode() *filterv3.ProcessingMode {
	return &filterv3.ProcessingMode{
		RequestHeaderMode:   filterv3.ProcessingMode_SEND,
		ResponseHeaderMode:  filterv3.ProcessingMode_SKIP,
		RequestBodyMode:     filterv3.ProcessingMode_NONE,
		ResponseBodyMode:    filterv3.ProcessingMode_NONE,
		RequestTrailerMode:  filterv3.ProcessingMode_SKIP,
		ResponseTrailerMode: filterv3.ProcessingMode_SEND,
	}
}

// mutationRules lets extproc change our headers and no others. The rules hold
// for its own answers too, which say what they contain and when to come back.
func mutationRules() *mutationv3.HeaderMutationRules {
	return &mutationv3.HeaderMutationRules{
		DisallowAll:     wrapperspb.Bool(true),
		AllowExpression: &matcherv3.RegexMatcher{Regex: ourPrefix + ".*|retry-after|content-type"},
	}
}

func exactly(names []string) *matcherv3.ListStringMatcher {
	out := &matcherv3.ListStringMatcher{}
	for _, n := range names {
		out.Patterns = append(out.Patterns, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: n}})
	}
	return out
}
