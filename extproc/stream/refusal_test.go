package stream

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/reason"

	"skipper/extproc/header"
)

func headerOf(f *skipperpb.Function) *header.Function { return header.Of(f) }

func TestRequestsThatAreRefused(t *testing.T) {
	good := string(fn.Marshal(function("t")))
	tests := []struct {
		name    string
		headers []string
		status  uint32
		grpc    codes.Code
		reason  reason.Reason
		body    string
	}{
		{"no header", nil, 400, codes.InvalidArgument, reason.HeaderMissing, "missing"},
		{"health check by POST", []string{":path", "/healthz", ":method", "POST"}, 400, codes.InvalidArgument, reason.HeaderMissing, "missing"},
		{"header twice", []string{"x-skipper-function", good, "x-skipper-function", good}, 400, codes.InvalidArgument, reason.HeaderRepeated, "once"},
		{"no JSON", []string{"x-skipper-function", "{"}, 400, codes.InvalidArgument, reason.HeaderInvalid, "JSON"},
		{"tenant that is no label", []string{"x-skipper-function", strings.Replace(good, `"t"`, `"a b"`, 1)}, 400, codes.InvalidArgument, reason.HeaderInvalid, "tenant"},
		{"too large", []string{"x-skipper-function", good + strings.Repeat(" ", 9<<10)}, 400, codes.InvalidArgument, reason.HeaderTooLarge, "8 KiB"},
		{"empty", []string{"x-skipper-function", ""}, 400, codes.InvalidArgument, reason.HeaderInvalid, "JSON"},
		{"second pass without a record", []string{"x-skipper-request", "0123"}, 503, codes.Unavailable, reason.NoInstance, "again"},
	}
	r := newRig(t, &fakeController{answer: always})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := r.open(t, tt.headers...)
			wantRefusal(t, c, tt.status, tt.grpc, tt.reason, tt.body)
		})
	}
	if r.count() != 0 {
		t.Errorf("the controller was asked %d times for nothing", r.count())
	}
}

func wantRefusal(t *testing.T, c *call, code uint32, g codes.Code, why reason.Reason, body string) {
	t.Helper()
	answer := c.answer()
	m := answer.GetImmediateResponse()
	if uint32(m.GetStatus().GetCode()) != code || codes.Code(m.GetGrpcStatus().GetStatus()) != g || reasonHeader(answer) != string(why) {
		t.Errorf("answer is %v, want %d, %v, %s", m, code, g, why)
	}
	if !strings.Contains(string(m.GetBody()), body) {
		t.Errorf("body is %q, want it to speak of %q", m.GetBody(), body)
	}
	retry := false
	for _, h := range m.GetHeaders().GetSetHeaders() {
		retry = retry || h.GetHeader().GetKey() == "retry-after"
	}
	if want := code == 429 || code == 503; retry != want {
		t.Errorf("retry-after present: %v, want %v", retry, want)
	}
	c.over()
}

func TestControllerErrors(t *testing.T) {
	tests := []struct {
		name   string
		err    error
		status uint32
		grpc   codes.Code
		reason reason.Reason
	}{
		{"invalid", status.Error(codes.InvalidArgument, "cause"), 400, codes.InvalidArgument, reason.HeaderInvalid},
		{"namespace", reason.Error(codes.NotFound, reason.NamespaceNotManaged, "cause"), 404, codes.NotFound, reason.NamespaceNotManaged},
		{"deployment", reason.Error(codes.NotFound, reason.DeploymentNotFound, "cause"), 404, codes.NotFound, reason.DeploymentNotFound},
		{"limit", reason.Error(codes.ResourceExhausted, reason.LimitReached, "cause"), 429, codes.ResourceExhausted, reason.LimitReached},
		{"rejected", reason.Error(codes.FailedPrecondition, reason.AssignRejected, "cause"), 503, codes.Unavailable, reason.AssignRejected},
		{"not allowed", status.Error(codes.PermissionDenied, "cause"), 503, codes.Unavailable, reason.ControllerUnavailable},
		{"internal", status.Error(codes.Internal, "cause"), 500, codes.Internal, reason.Internal},
		{"reason of a newer controller", reason.Error(codes.NotFound, "moon_phase", "cause"), 404, codes.NotFound, reason.NamespaceNotManaged},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, &fakeController{answer: func(context.Context, int, *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
				return nil, tt.err
			}})
			wantRefusal(t, r.ask(t, function("t")), tt.status, tt.grpc, tt.reason, "cause")
			if r.count() != 1 {
				t.Errorf("%d questions, want 1", r.count())
			}
		})
	}
}

func TestLimitThatNoRetryLiftsHasNoRetryAfter(t *testing.T) {
	for _, row := range []struct {
		err  error
		want int
	}{
		{reason.Error(codes.ResourceExhausted, reason.LimitReached, "too much lately"), againLater},
		{reason.Permanent(codes.ResourceExhausted, reason.LimitReached, "too many instances"), 0},
	} {
		if got := controllerRefusal(row.err); got.again != row.want || httpStatus(got.reason) != 429 {
			t.Errorf("%v: %+v, want again %d", row.err, got, row.want)
		}
	}
}

func TestInstanceThatCannotBeUsed(t *testing.T) {
	r := newRig(t, &fakeController{answer: func(_ context.Context, n int, q *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
		i := instance(q.GetFunction(), n, 1)
		i.Cluster = ""
		return i, nil
	}})
	wantRefusal(t, r.ask(t, function("t")), 500, codes.Internal, reason.Internal, "cluster")
}

func TestInstanceOfAnotherTenantIsNeverUsed(t *testing.T) {
	r := newRig(t, &fakeController{answer: func(_ context.Context, n int, _ *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
		return instance(function("u"), n, 1), nil
	}})
	for _, f := range []*skipperpb.Function{function("t"), oneshot()} {
		wantRefusal(t, r.ask(t, f), 500, codes.Internal, reason.Internal, "another function's")
	}
}

func TestWaitsThatEndByTheRequestsOwnDeadline(t *testing.T) {
	tests := []struct {
		name   string
		err    error
		reason reason.Reason
		body   string
	}{
		{"controller names the cause", reason.Error(codes.DeadlineExceeded, reason.HoldTimeout, "pool is empty"), reason.HoldTimeout, "pool is empty"},
		{"no word from the controller", nil, reason.HoldTimeout, "no instance of prod/echo/t within 50ms"},
		{"controller is down", status.Error(codes.Unavailable, "refused"), reason.ControllerUnavailable, "refused"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, &fakeController{answer: func(ctx context.Context, _ int, _ *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
				if tt.err == nil {
					<-ctx.Done()
					return nil, status.FromContextError(ctx.Err()).Err()
				}
				return nil, tt.err
			}})
			wantRefusal(t, r.ask(t, function("t"), "grpc-timeout", "50m"), 503, codes.Unavailable, tt.reason, tt.body)
		})
	}
}

func TestPatience(t *testing.T) {
	tests := []struct {
		grpc, expected string
		want           time.Duration
	}{
		{"", "", 30 * time.Second},
		{"1S", "", time.Second},
		{"1S", "500", 500 * time.Millisecond},
		{"100M", "", 30 * time.Second},
		{"20000u", "", 20 * time.Millisecond},
		{"99999999H", "", 30 * time.Second},
		{"0n", "", 0},
		{"", "0", 30 * time.Second},
		{"", "-5", 30 * time.Second},
		{"x", "y", 30 * time.Second},
		{"5x", "1e3", 30 * time.Second},
		{"123456789S", "", 30 * time.Second},
		{"", "99999999999999999999", 30 * time.Second},
	}
	for _, tt := range tests {
		if got := patience(30*time.Second, []byte(tt.grpc), []byte(tt.expected)); got != tt.want {
			t.Errorf("patience(%q, %q) = %s, want %s", tt.grpc, tt.expected, got, tt.want)
		}
	}
	if d, ok := parseGRPCTimeout([]byte("99999999H")); !ok || d != math.MaxInt64 {
		t.Errorf("an overflow is %s, %v", d, ok)
	}
}

func FuzzPatience(f *testing.F) {
	f.Add([]byte("1S"), []byte("5"))
	f.Add([]byte("99999999H"), []byte("18446744073709551615"))
	f.Fuzz(func(t *testing.T, g, e []byte) {
		if d := patience(time.Second, g, e); d < 0 || d > time.Second {
			t.Errorf("patience is %s", d)
		}
	})
}

func TestEveryReasonHasItsStatus(t *testing.T) {
	if got := reasonOf(errors.New("plain")); got != reason.Internal {
		t.Errorf("an error without a code is %s", got)
	}
	if got := httpStatus("anything else"); got != 500 {
		t.Errorf("an unknown reason is %d", got)
	}
}

func TestRetryAfterIsTheControllersWord(t *testing.T) {
	for delay, want := range map[time.Duration]int{0: 1, time.Millisecond: 1, 1500 * time.Millisecond: 2, time.Minute: 60} {
		s, err := status.New(codes.FailedPrecondition, "no").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
		if err != nil {
			t.Fatal(err)
		}
		if got := controllerRefusal(s.Err()).again; got != want {
			t.Errorf("%s becomes %d s, want %d", delay, got, want)
		}
	}
	if got := controllerRefusal(status.Error(codes.Unavailable, "no")).again; got != againLater {
		t.Errorf("without a word it is %d s", got)
	}
}
