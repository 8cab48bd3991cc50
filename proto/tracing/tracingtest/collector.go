// Package tracingtest is an OpenTelemetry collector for tests: it takes spans by
// OTLP over gRPC and keeps them.
package tracingtest

import (
	"context"
	"encoding/hex"
	"net"
	"sync"
	"testing"

	tracecollectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Span is what a collector has been told. IDs are in hexadecimal.
type Span struct {
	Service, Name     string
	Trace, ID, Parent string
	// Attributes by name, those that are texts.
	Attributes map[string]string
	Failed     bool
}

// Collector keeps spans. Safe for concurrent use.
type Collector struct {
	tracecollectorpb.UnimplementedTraceServiceServer
	// URL is where spans are to be sent.
	URL string

	mu    sync.Mutex
	spans []Span
}

// Start serves until the end of the test.
func Start(t testing.TB) *Collector {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{URL: "http://" + ln.Addr().String()}
	s, done := grpc.NewServer(), make(chan struct{})
	tracecollectorpb.RegisterTraceServiceServer(s, c)
	go func() {
		defer close(done)
		_ = s.Serve(ln) // ends with Stop
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return c
}

// Export implements the collector's service.
func (c *Collector) Export(_ context.Context, r *tracecollectorpb.ExportTraceServiceRequest) (*tracecollectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		service := texts(resource.GetResource().GetAttributes())["service.name"]
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, spanOf(service, s))
			}
		}
	}
	return &tracecollectorpb.ExportTraceServiceResponse{}, nil
}

func spanOf(service string, s *tracepb.Span) Span {
	return Span{
		Service: service, Name: s.GetName(),
		Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		Attributes: texts(s.GetAttributes()), Failed: s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR,
	}
}

func texts(all []*commonpb.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range all {
		if v, ok := a.GetValue().GetValue().(*commonpb.AnyValue_StringValue); ok {
			out[a.GetKey()] = v.StringValue
		}
	}
	return out
}

// Spans are those that have come so far.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}
