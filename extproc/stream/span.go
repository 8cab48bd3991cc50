package stream

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"skipper/proto/tracing"

	"skipper/extproc/header"
)

// coldSpan begins the span of a request that must wait, below the one that the
// client sent; nil where nothing is traced. The headers are looked at only then.
func (x *session) coldSpan(f *header.Function, start time.Time) trace.Span {
	t := x.server.opts.Tracer
	if t == nil {
		return nil
	}
	parent := tracing.Remote(context.Background(), string(x.in.Header("traceparent")), string(x.in.Header("tracestate")))
	_, span := t.Start(parent, "cold start", trace.WithTimestamp(start), tracing.Function(f.Spec))
	return span
}

// endSpan ends it with what the wait came to.
func endSpan(span trace.Span, o outcome) {
	if span == nil {
		return
	}
	word := "left"
	switch o.verdict {
	case granted:
		word = "sent"
		i := o.grant.lease.Instance
		tracing.Sent(span, i.Name, i.UID)
	case denied:
		word = "refused"
		tracing.Refused(span, o.refusal.reason, o.refusal.message)
	}
	tracing.End(span, word, nil)
}
