package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	skipperpb "skipper/proto"
	"skipper/proto/reason"
)

// Attributes of spans, beside those of OpenTelemetry.
const (
	attrNamespace  = "skipper.namespace"
	attrDeployment = "skipper.deployment"
	attrTenant     = "skipper.tenant"
	attrOneshot    = "skipper.oneshot"
	attrPod        = "skipper.pod"
	attrInstance   = "skipper.instance"
	attrOutcome    = "skipper.outcome"
	attrReason     = "skipper.reason"
)

// Function says which function a span is about.
func Function(f *skipperpb.Function) trace.SpanStartEventOption {
	return trace.WithAttributes(
		attribute.String(attrNamespace, f.GetNamespace()), attribute.String(attrDeployment, f.GetDeployment()),
		attribute.String(attrTenant, f.GetTenant()), attribute.Bool(attrOneshot, f.GetOneshot()),
	)
}

// Pod says which pod a span is about.
func Pod(name, uid string) trace.SpanStartEventOption {
	return trace.WithAttributes(attribute.String(attrPod, name), attribute.String(attrInstance, uid))
}

// Start begins a child of the span in ctx, by the provider of that one. Without
// a span in ctx that is recorded, it does nothing.
func Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, noop.Span{}
	}
	return parent.TracerProvider().Tracer(scope).Start(ctx, name, opts...)
}

// End ends a span with what came of it, a word of a closed list; err is why it
// failed, nil if it did not.
func End(s trace.Span, outcome string, err error) {
	if s.IsRecording() {
		s.SetAttributes(attribute.String(attrOutcome, outcome))
		if err != nil {
			s.SetStatus(codes.Error, err.Error())
		}
		if r := reason.Of(err); r != "" {
			s.SetAttributes(attribute.String(attrReason, string(r)))
		}
	}
	s.End()
}

// Sent notes the instance that a request was sent to.
func Sent(s trace.Span, pod, uid string) {
	s.SetAttributes(attribute.String(attrPod, pod), attribute.String(attrInstance, uid))
}

// Refused notes the reason with which a request was answered.
func Refused(s trace.Span, r reason.Reason, message string) {
	s.SetAttributes(attribute.String(attrReason, string(r)))
	s.SetStatus(codes.Error, message)
}

// Remote returns ctx with the parent that the two headers name, if they do.
func Remote(ctx context.Context, traceparent, tracestate string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent, "tracestate": tracestate})
}

// ClientInterceptor sends the context of the span in a call's context along.
func ClientInterceptor() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		carrier := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, carrier)
		for k, v := range carrier {
			ctx = metadata.AppendToOutgoingContext(ctx, k, v)
		}
		return invoke(ctx, method, req, reply, conn, opts...)
	}
}

// ServerInterceptor gives each call that comes with a span's context a span of
// its own below that, which is in the context of the handler. Other calls get
// none: what nobody waits for traced is not worth it.
func ServerInterceptor(t trace.Tracer) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		remote := Remote(ctx, first(ctx, "traceparent"), first(ctx, "tracestate"))
		if !trace.SpanContextFromContext(remote).IsValid() {
			return next(ctx, req)
		}
		opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
		if f, ok := req.(interface{ GetFunction() *skipperpb.Function }); ok {
			opts = append(opts, Function(f.GetFunction()))
		}
		ctx, span := t.Start(remote, info.FullMethod[1:], opts...)
		resp, err := next(ctx, req)
		if r, ok := resp.(interface{ GetInstance() *skipperpb.Instance }); ok && err == nil {
			Sent(span, r.GetInstance().GetName(), r.GetInstance().GetUid())
		}
		End(span, status.Code(err).String(), err)
		return resp, err
	}
}

func first(ctx context.Context, key string) string {
	if v := metadata.ValueFromIncomingContext(ctx, key); len(v) > 0 {
		return v[0]
	}
	return ""
}
