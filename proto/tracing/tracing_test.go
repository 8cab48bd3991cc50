package tracing_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	skipperpb "skipper/proto"
	"skipper/proto/reason"
	"skipper/proto/tracing"
	"skipper/proto/tracing/tracingtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func env(kv ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(kv); i += 2 {
			if kv[i] == name {
				return kv[i+1], true
			}
		}
		return "", false
	}
}

func open(t *testing.T, endpoint string, log *zap.Logger) *tracing.Exporter {
	t.Helper()
	e, err := tracing.Open(t.Context(), tracing.Options{Service: "s", Instance: "i", Endpoint: endpoint, Lookup: env(), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestOffUnlessAskedFor(t *testing.T) {
	const somewhere = "http://127.0.0.1:1"
	for name, row := range map[string]struct {
		endpoint string
		env      []string
		want     bool
	}{
		"nothing":           {"", nil, false},
		"flag":              {somewhere, nil, true},
		"variable":          {"", []string{"OTEL_EXPORTER_OTLP_ENDPOINT", somewhere}, true},
		"variable of spans": {"", []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", somewhere}, true},
		"empty variable":    {"", []string{"OTEL_EXPORTER_OTLP_ENDPOINT", ""}, false},
		"disabled":          {somewhere, []string{"OTEL_SDK_DISABLED", "true"}, false},
		"exporter none":     {somewhere, []string{"OTEL_TRACES_EXPORTER", "none"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := tracing.Open(t.Context(), tracing.Options{Endpoint: row.endpoint, Lookup: env(row.env...), Logger: zap.NewNop()})
			if err != nil {
				t.Fatal(err)
			}
			if got := e.Tracer() != nil; got != row.want {
				t.Errorf("traces: %v, want %v", got, row.want)
			}
			if err := e.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	for _, bad := range []string{"collector:4317", "collector", "grpc://collector:1", "http://"} {
		if err := tracing.CheckEndpoint(bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// server and client are the two interceptors, one after the other, without a
// network between.
func call(ctx context.Context, t *testing.T, tracer trace.Tracer, handler grpc.UnaryHandler) error {
	t.Helper()
	f := &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "t"}
	return tracing.ClientInterceptor()(ctx, "/skipper.ControllerService/GetInstance", &skipperpb.GetInstanceRequest{Function: f}, nil, nil,
		func(ctx context.Context, method string, req, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			md, _ := metadata.FromOutgoingContext(ctx)
			_, err := tracing.ServerInterceptor(tracer)(metadata.NewIncomingContext(t.Context(), md), req, &grpc.UnaryServerInfo{FullMethod: method}, handler)
			return err
		})
}

func byName(spans []tracingtest.Span) map[string]tracingtest.Span {
	out := map[string]tracingtest.Span{}
	for _, s := range spans {
		out[s.Name] = s
	}
	return out
}

// only are the attributes whose names are asked for.
func only(attributes, names map[string]string) map[string]string {
	if names == nil {
		return nil
	}
	out := map[string]string{}
	for name := range names {
		out[name] = attributes[name]
	}
	return out
}

func TestSpansAreChildrenAcrossACall(t *testing.T) {
	c := tracingtest.Start(t)
	e := open(t, c.URL, zap.NewNop())
	remote := tracing.Remote(t.Context(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=1")
	ctx, span := e.Tracer().Start(remote, "outer")
	_ = call(ctx, t, e.Tracer(), func(ctx context.Context, _ any) (any, error) {
		_, inner := tracing.Start(ctx, "inner", tracing.Pod("p", "u"))
		tracing.End(inner, "refused", errors.New("no"))
		return nil, reason.Error(codes.NotFound, reason.DeploymentNotFound, "never seen")
	})
	tracing.End(span, "sent", nil)
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	const trace, served = "0af7651916cd43dd8448eb211c80319c", "skipper.ControllerService/GetInstance"
	spans := byName(c.Spans())
	for _, row := range []struct {
		name, parent string
		failed       bool
		attributes   map[string]string
	}{
		{"outer", "b7ad6b7169203331", false, nil},
		{served, spans["outer"].ID, true, map[string]string{"skipper.tenant": "t", "skipper.outcome": "NotFound", "skipper.reason": "deployment_not_found"}},
		{"inner", spans[served].ID, true, map[string]string{"skipper.pod": "p"}},
	} {
		got := spans[row.name]
		want := tracingtest.Span{Service: "s", Name: row.name, Trace: trace, ID: got.ID, Parent: row.parent, Failed: row.failed, Attributes: row.attributes}
		got.Attributes = only(got.Attributes, row.attributes)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s\n%+v", row.name, diff, spans)
		}
	}
	if len(c.Spans()) != 3 {
		t.Errorf("%d spans, want 3: %+v", len(c.Spans()), c.Spans())
	}
}

func TestWithoutASpanNothingIsTraced(t *testing.T) {
	c := tracingtest.Start(t)
	e := open(t, c.URL, zap.NewNop())
	unsampled := tracing.Remote(t.Context(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "")
	for _, ctx := range []context.Context{t.Context(), unsampled} {
		err := call(ctx, t, e.Tracer(), func(ctx context.Context, _ any) (any, error) {
			if _, span := tracing.Start(ctx, "inner"); span.IsRecording() {
				t.Error("a span is recorded")
			}
			return nil, nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if err := e.Close(t.Context()); err != nil || len(c.Spans()) != 0 {
		t.Errorf("close: %v, spans: %v", err, c.Spans())
	}
	if n := testing.AllocsPerRun(100, func() { _, s := tracing.Start(context.Background(), "x"); tracing.End(s, "y", nil) }); n > 0 {
		t.Errorf("%v allocations for a span that nobody asked for", n)
	}
}

// A collector that does not answer costs the spans, a line in the log, and no
// more than the time that is left at the end.
func TestSilentCollectorHoldsNobodyUp(t *testing.T) {
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	core, _ := observer.New(zap.InfoLevel)
	e := open(t, "http://"+ln.Addr().String(), zap.New(core))
	_, span := e.Tracer().Start(t.Context(), "lost")
	span.End()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_ = e.Close(ctx) // whether the last attempt counts as an error is the library's business
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
}
