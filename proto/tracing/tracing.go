// Package tracing gives cold starts spans, and sends them to an OpenTelemetry
// collector by OTLP over gRPC.
//
// It is off unless an endpoint is given, and then costs nothing: there is no
// tracer, and no span is begun. A span belongs to whoever began it; where it is
// in a context, Start makes children of it by the same provider, so code in
// between knows of no provider. Between processes the context travels in gRPC
// metadata, as W3C traceparent and tracestate.
//
// Spans name namespace, deployment and tenant, which metrics never do: a trace
// is about one request. Tokens and metadata of functions are in none.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
)

const (
	// scope is the instrumentation scope of all spans.
	scope = "skipper"
	// exportTimeout bounds one message to the collector, attempts included.
	exportTimeout = 5 * time.Second
)

// Variables of the OpenTelemetry specification that switch spans on or off. The
// exporter reads more of them itself: headers, certificates, the sampler.
const (
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_TRACES_EXPORTER"
)

// Options of Open.
type Options struct {
	// Service is the program, Instance the process: service.name and
	// service.instance.id.
	Service, Instance string
	// Endpoint is the URL of the collector: http without TLS, or https. Empty:
	// that of the standard variables; without those nothing is traced.
	Endpoint string
	// Lookup reads the environment.
	Lookup func(string) (string, bool)
	Logger *zap.Logger
}

// CheckEndpoint says what is wrong with Options.Endpoint; empty is fine.
func CheckEndpoint(text string) error {
	u, err := url.Parse(text)
	if text != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("%q is no URL such as http://collector:4317", text)
	}
	return nil
}

// Exporter sends spans until it is closed. Nil is one that is off; safe for
// concurrent use.
type Exporter struct {
	provider *sdktrace.TracerProvider
	told     *told
}

// Open makes an exporter, nil if nothing is to be traced. It connects when there
// is something to send; spans that cannot be sent are dropped and said in the log.
func Open(ctx context.Context, o Options) (*Exporter, error) {
	if !o.enabled() {
		return nil, nil //nolint:nilnil // nil is an exporter that is off
	}
	if err := CheckEndpoint(o.Endpoint); err != nil {
		return nil, fmt.Errorf("open exporter of spans: %w", err)
	}
	opts := []otlptracegrpc.Option{
		otlptracegrpc.WithTimeout(exportTimeout),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: exportTimeout, MaxElapsedTime: exportTimeout}),
	}
	if o.Endpoint != "" {
		opts = append(opts, otlptracegrpc.WithEndpointURL(o.Endpoint))
	}
	e, err := otlptracegrpc.New(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("open exporter of spans: %w", err)
	}
	t := &told{SpanExporter: e, log: o.Logger.Named("tracing"), ended: make(chan struct{}), cut: make(chan struct{})}
	return &Exporter{sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(t),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", o.Service), attribute.String("service.instance.id", o.Instance))),
	), t}, nil
}

func (o Options) enabled() bool {
	if v, _ := o.Lookup(envDisabled); v == "true" {
		return false
	}
	if v, _ := o.Lookup(envExporter); v == "none" {
		return false
	}
	for _, name := range []string{envEndpoint, envTracesEndpoint} {
		if v, _ := o.Lookup(name); v != "" {
			return true
		}
	}
	return o.Endpoint != ""
}

// Tracer begins spans; nil if the exporter is off.
func (e *Exporter) Tracer() trace.Tracer {
	if e == nil {
		return nil
	}
	return e.provider.Tracer(scope)
}

// Close sends what is left, until ctx ends; nothing runs any more when it
// returns. Spans that end later are dropped. Call it once.
func (e *Exporter) Close(ctx context.Context) error {
	if e == nil {
		return nil
	}
	err := e.provider.Shutdown(ctx)
	close(e.told.cut)
	<-e.told.ended
	if err != nil {
		return fmt.Errorf("send last spans: %w", err)
	}
	return nil
}

// told says in the log when spans begin to be lost and when that is over,
// rather than each time, and keeps errors from the process-wide handler.
type told struct {
	sdktrace.SpanExporter
	log    *zap.Logger
	losing atomic.Bool
	cut    chan struct{} // closed: sending ends
	ended  chan struct{} // closed by Shutdown
}

// ExportSpans implements sdktrace.SpanExporter.
func (t *told) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan error, 1)
	go func() { sent <- t.SpanExporter.ExportSpans(ctx, spans) }()
	var err error
	select {
	case err = <-sent:
	case <-t.cut:
		cancel()
		err = <-sent
	}
	switch losing := err != nil && !errors.Is(err, context.Canceled); {
	case losing && !t.losing.Swap(true):
		t.log.Warn("spans are lost: the collector does not take them", zap.Int("spans", len(spans)), zap.Error(err))
	case err == nil && t.losing.Swap(false):
		t.log.Info("the collector takes spans again")
	}
	return nil
}

// Shutdown implements sdktrace.SpanExporter; it is the last call.
func (t *told) Shutdown(ctx context.Context) error {
	defer close(t.ended)
	if err := t.SpanExporter.Shutdown(ctx); err != nil {
		return fmt.Errorf("close connection to collector: %w", err)
	}
	return nil
}
