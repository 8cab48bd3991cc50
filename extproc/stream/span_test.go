package stream

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/codes"

	skipperpb "skipper/proto"
	"skipper/proto/reason"

	"skipper/extproc/hold"
)

// TestOnlyColdRequestsHaveSpans: one each, below the client's, with what came of
// the wait; warm ones have none.
func TestOnlyColdRequestsHaveSpans(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	c := &fakeController{answer: func(ctx context.Context, n int, r *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
		switch r.GetFunction().GetTenant() {
		case "bad":
			return nil, reason.Error(codes.NotFound, reason.DeploymentNotFound, "never seen")
		case "slow":
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return always(ctx, n, r)
	}}
	r := newRig(t, c, func(o *Options, _ *hold.Options) { o.Tracer = provider.Tracer("test") })
	for range 2 {
		good := r.ask(t, function("good"), "traceparent", parent, "tracestate", "a=1")
		good.instance()
		good.over()
	}
	bad := r.ask(t, function("bad"), "traceparent", parent)
	bad.answer()
	bad.over()
	slow := r.ask(t, function("slow"))
	slow.recv()   // more time
	slow.cancel() // the client leaves
	until(t, "three spans have ended", func() bool { return len(recorder.Ended()) == 3 })
	type span struct{ parent, state, tenant, outcome, reason, instance string }
	got := map[string]span{}
	for _, s := range recorder.Ended() {
		is := span{parent: s.Parent().SpanID().String(), state: s.Parent().TraceState().String()}
		for _, a := range s.Attributes() {
			switch a.Key {
			case "skipper.tenant":
				is.tenant = a.Value.AsString()
			case "skipper.outcome":
				is.outcome = a.Value.AsString()
			case "skipper.reason":
				is.reason = a.Value.AsString()
			case "skipper.instance":
				is.instance = a.Value.AsString()
			}
		}
		got[s.Name()+" "+is.tenant] = is
	}
	want := map[string]span{
		"cold start good": {"b7ad6b7169203331", "a=1", "good", "sent", "", "uid-1"},
		"cold start bad":  {"b7ad6b7169203331", "", "bad", "refused", "deployment_not_found", ""},
		"cold start slow": {"0000000000000000", "", "slow", "left", "", ""},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(span{})); d != "" {
		t.Errorf("spans (-want +got):\n%s", d)
	}
}
