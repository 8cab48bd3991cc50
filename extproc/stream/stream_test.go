package stream

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	skipperpb "skipper/proto"
	"skipper/proto/reason"
	"skipper/xds"

	"skipper/proto/fn"

	"skipper/extproc/hold"
)

func TestColdThenWarm(t *testing.T) {
	r := newRig(t, &fakeController{answer: always})
	cold := r.ask(t, function("t"))
	if got := cold.instance(); got != "uid-1" {
		t.Fatalf("cold request went to %s", got)
	}
	warm := r.ask(t, function("t"))
	m := warm.recv()
	if m.GetOverrideMessageTimeout() != nil {
		t.Fatal("a warm request was made to wait")
	}
	if !m.GetRequestHeaders().GetResponse().GetClearRouteCache() {
		t.Error("route cache is not cleared")
	}
	if got := m.GetDynamicMetadata().GetFields()["envoy.lb"].GetStructValue().GetFields()["x-skipper-instance"].GetStringValue(); got != "10.0.0.1:8080" {
		t.Errorf("host in metadata is %q", got)
	}
	if diff := cmp.Diff(map[string]uint32{"uid-1": 2}, r.inFlight()); diff != "" {
		t.Errorf("in flight (-want +got):\n%s", diff)
	}
	warm.over()
	cold.over()
	if diff := cmp.Diff(map[string]uint32{}, r.inFlight()); diff != "" {
		t.Errorf("in flight after the end (-want +got):\n%s", diff)
	}
	if r.count() != 1 {
		t.Errorf("%d questions, want 1", r.count())
	}
}

func TestThirtyColdRequestsAskOnce(t *testing.T) {
	gate := make(chan struct{})
	r := newRig(t, &fakeController{answer: func(ctx context.Context, n int, q *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
		<-gate
		return always(ctx, n, q)
	}})
	var calls []*call
	for range 30 {
		calls = append(calls, r.ask(t, function("t")))
	}
	until(t, "30 requests wait", func() bool { return r.hall.Waiting() == 30 })
	close(gate)
	for _, c := range calls {
		if got := c.instance(); got != "uid-1" {
			t.Errorf("request went to %s", got)
		}
		c.over()
	}
	if r.count() != 1 {
		t.Errorf("%d questions, want 1", r.count())
	}
	if n := r.hall.Waiting(); n != 0 {
		t.Errorf("%d still hold a place", n)
	}
}

func TestOneshotsGetAPodEachAndReleaseIt(t *testing.T) {
	r := newRig(t, &fakeController{answer: always})
	var calls []*call
	got := map[string]bool{}
	for range 5 {
		calls = append(calls, r.ask(t, oneshot()))
	}
	for _, c := range calls {
		got[c.instance()] = true
	}
	if len(got) != 5 || r.count() != 5 {
		t.Fatalf("%d pods and %d questions, want 5 and 5", len(got), r.count())
	}
	if n := len(r.inFlight()); n != 5 {
		t.Errorf("heartbeat names %d pods, want 5", n)
	}
	for _, c := range calls {
		c.over()
	}
	for range 5 {
		delete(got, <-r.released)
	}
	if len(got) != 0 || len(r.released) != 0 {
		t.Errorf("not released: %v, and %d released twice", got, len(r.released))
	}
}

func TestLostStreamKeepsItsCountAndItsOneshot(t *testing.T) {
	r := newRig(t, &fakeController{answer: always})
	c := r.ask(t, oneshot())
	uid := c.instance()
	c.cancel()
	until(t, "the lost stream is over", func() bool { return r.metric(t, "skipper_extproc_stream_ends_total", "lost") == 1 })
	if diff := cmp.Diff(map[string]uint32{uid: 1}, r.inFlight()); diff != "" {
		t.Errorf("in flight (-want +got):\n%s", diff)
	}
	r.table.Sweep(time.Now().Add(2*time.Minute), true)
	if diff := cmp.Diff(map[string]uint32{}, r.inFlight()); diff != "" {
		t.Errorf("in flight after the lease (-want +got):\n%s", diff)
	}
	if len(r.released) != 0 {
		t.Error("the pod of a lost request was released")
	}
}

// hasty is an Envoy that gives the stream up before the answer: gRPC takes no
// message any more and the stream ends without a word about the request.
type hasty struct {
	*scripted
	granted chan struct{} // closed when it has been asked for more time
	gone    chan struct{} // closed when it gives up, which is at the answer
}

func (s *hasty) RecvMsg(m any) error {
	if s.reads++; s.reads > 1 {
		<-s.gone
		return context.Canceled
	}
	return s.codec.Unmarshal(s.in, m)
}

func (s *hasty) SendMsg(m any) error {
	if !closed(s.granted) {
		close(s.granted)
		return s.scripted.SendMsg(m)
	}
	close(s.gone)
	return context.Canceled
}

func TestAnswerThatEnvoyNeverGotLeavesNothingInProgress(t *testing.T) {
	for _, f := range []*skipperpb.Function{function("t"), oneshot()} {
		stream := &hasty{scripted: script(t, f), granted: make(chan struct{}), gone: make(chan struct{})}
		r := newRig(t, &fakeController{answer: func(ctx context.Context, n int, q *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
			<-stream.granted // an answer at once would leave nothing to wait for
			return always(ctx, n, q)
		}})
		if err := r.server.Process(stream); err == nil {
			t.Error("the stream ended in good order")
		}
		if diff := cmp.Diff(map[string]uint32{}, r.inFlight()); diff != "" {
			t.Errorf("oneshot %t: in flight (-want +got):\n%s", f.GetOneshot(), diff)
		}
		if released := len(r.released) == 1; released != f.GetOneshot() {
			t.Errorf("oneshot %t: %d instances released", f.GetOneshot(), len(r.released))
		}
	}
}

func TestClientThatLeavesFreesItsPlace(t *testing.T) {
	ended := make(chan error, 1)
	r := newRig(t, &fakeController{called: make(chan int, 1), answer: func(ctx context.Context, _ int, _ *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, status.FromContextError(ctx.Err()).Err()
	}})
	c := r.ask(t, function("t"))
	<-r.called
	c.over()
	if n := r.hall.Waiting(); n != 0 {
		t.Errorf("%d still hold a place", n)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the question ended with %v, want that it was cancelled", err)
	}
}

func TestOneshotThatComesTooLateIsReleased(t *testing.T) {
	gate := make(chan struct{})
	r := newRig(t, &fakeController{called: make(chan int, 1), answer: func(ctx context.Context, n int, q *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
		<-gate // deaf to ctx
		return always(ctx, n, q)
	}})
	c := r.ask(t, oneshot())
	<-r.called
	c.over()
	close(gate)
	if got := <-r.released; got != "uid-1" {
		t.Errorf("%s was released", got)
	}
}

func TestControllerDownThenUp(t *testing.T) {
	r := newRig(t, &fakeController{answer: func(ctx context.Context, n int, q *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
		if n < 5 {
			return nil, status.Error(codes.Unavailable, "connection refused")
		}
		return always(ctx, n, q)
	}})
	c := r.ask(t, function("t"))
	if got := c.instance(); got != "uid-5" {
		t.Errorf("request went to %s", got)
	}
	c.over()
}

func TestPushEndsTheWait(t *testing.T) {
	r := newRig(t, &fakeController{called: make(chan int, 1), answer: func(ctx context.Context, _ int, _ *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}})
	f := function("t")
	c := r.ask(t, f)
	<-r.called
	r.table.Push(&skipperpb.FunctionInstances{Name: xds.InstancesName(fn.KeyOf(f)), Version: 10, Instances: []*skipperpb.Instance{instance(f, 7, 9)}}, time.Now())
	if got := c.instance(); got != "uid-7" {
		t.Errorf("request went to %s", got)
	}
	c.over()
}

func TestRemovedInstanceIsNotUsed(t *testing.T) {
	r := newRig(t, &fakeController{answer: func(_ context.Context, n int, q *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
		if n == 1 {
			return instance(q.GetFunction(), 1, 5), nil // the push at 10 says that it is gone
		}
		if diff := cmp.Diff([]string{"pod-1"}, q.GetExcludeInstanceNames()); diff != "" {
			return nil, status.Error(codes.InvalidArgument, diff)
		}
		return instance(q.GetFunction(), 2, 11), nil
	}})
	f := function("t")
	name := xds.InstancesName(fn.KeyOf(f))
	r.table.Function(headerOf(f))
	r.table.Push(&skipperpb.FunctionInstances{Name: name, Version: 5, Instances: []*skipperpb.Instance{instance(f, 1, 5)}}, time.Now())
	r.table.Push(&skipperpb.FunctionInstances{Name: name, Version: 10}, time.Now())
	c := r.ask(t, f)
	if got := c.instance(); got != "uid-2" {
		t.Errorf("request went to %s", got)
	}
	c.over()
}

func TestStaleTableIsNotUsed(t *testing.T) {
	r := newRig(t, &fakeController{answer: always})
	c := r.ask(t, function("t"))
	c.instance()
	c.over()
	r.table.Sweep(time.Now().Add(2*time.Minute), false)
	c = r.ask(t, function("t"))
	if got := c.instance(); got != "uid-2" {
		t.Errorf("request went to %s, want what the controller said just now", got)
	}
	c.over()
	if diff := cmp.Diff(map[string]uint32{}, r.inFlight()); diff != "" {
		t.Errorf("in flight (-want +got):\n%s", diff)
	}
}

func TestTrailersAreLeftAlone(t *testing.T) {
	r := newRig(t, &fakeController{answer: always})
	c := r.ask(t, function("t"))
	c.instance()
	c.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}})
	m := c.recv()
	if m.GetResponseTrailers() == nil {
		t.Errorf("trailers are answered with %v", m)
	}
	c.over()
}

func TestHealthCheck(t *testing.T) {
	r := newRig(t, &fakeController{answer: always})
	c := r.open(t, ":path", "/healthz")
	m := c.recv().GetImmediateResponse()
	if m.GetStatus().GetCode() != http.StatusOK || string(m.GetBody()) != "ok\n" || reasonHeader(&extprocv3.ProcessingResponse{}) != "" {
		t.Errorf("health check is answered with %v", m)
	}
	c.over()
}

func TestMessagesInAnyOrder(t *testing.T) {
	trailers := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}}
	body := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{}}}
	r := newRig(t, &fakeController{answer: always})
	c := r.ask(t, function("t"))
	c.instance()
	for _, m := range []*extprocv3.ProcessingRequest{trailers, body, {}, trailers} {
		c.send(m)
	}
	c.over()
	c = r.ask(t, function("t"))
	c.instance()
	c.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{}}})
	if m := c.recv(); m.GetRequestHeaders() == nil || m.GetImmediateResponse() != nil {
		t.Errorf("second headers are answered with %v", m)
	}
	c.over()
	if diff := cmp.Diff(map[string]uint32{}, r.inFlight()); diff != "" {
		t.Errorf("in flight (-want +got):\n%s", diff)
	}
}

func TestQueueBounds(t *testing.T) {
	block := func(ctx context.Context, _ int, _ *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	r := newRig(t, &fakeController{answer: block}, func(_ *Options, h *hold.Options) { h.PerFunction = 2 })
	a, b := r.ask(t, function("t")), r.ask(t, function("t"))
	until(t, "two wait", func() bool { return r.hall.Waiting() == 2 })
	full := r.ask(t, function("t"))
	m := full.recv()
	if m.GetImmediateResponse().GetStatus().GetCode() != http.StatusTooManyRequests || reasonHeader(m) != string(reason.HoldQueueFull) {
		t.Errorf("third request is answered with %v", m)
	}
	for _, c := range []*call{a, b, full} {
		c.over()
	}
}

func TestDrainAnswersThoseWhoWait(t *testing.T) {
	gate := make(chan struct{})
	r := newRig(t, &fakeController{called: make(chan int, 1), answer: func(ctx context.Context, n int, q *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
		<-gate
		return always(ctx, n, q)
	}})
	c := r.ask(t, function("t"))
	<-r.called
	var drained sync.WaitGroup
	drained.Go(func() { r.server.Drain(t.Context()) })
	until(t, "the server drains", func() bool { return closed(r.server.drains) })
	late := r.ask(t, function("t"))
	close(gate)
	for _, c := range []*call{c, late} {
		if got := c.instance(); got != "uid-1" {
			t.Errorf("request went to %s", got)
		}
	}
	drained.Wait()
	c.over()
	late.over()
}

func TestDrainThatTakesTooLongRefuses(t *testing.T) {
	r := newRig(t, &fakeController{called: make(chan int, 1), answer: func(ctx context.Context, _ int, _ *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}})
	c := r.ask(t, function("t"))
	<-r.called
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.server.Drain(ctx)
	if m := c.answer(); reasonHeader(m) != string(reason.ShuttingDown) {
		t.Errorf("waiting request is answered with %v", m)
	}
	c.over()
}

func TestThousandClientsLeaveDuringAColdStart(t *testing.T) {
	r := newRig(t, &fakeController{answer: func(ctx context.Context, _ int, _ *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}})
	var calls []*call
	for n := range 1000 {
		f := function("t" + strings.Repeat("x", n%10))
		f.Oneshot = n%3 == 0
		calls = append(calls, r.ask(t, f))
	}
	until(t, "all wait", func() bool { return r.hall.Waiting() == 1000 })
	for _, c := range calls {
		c.over()
	}
	if n := r.hall.Waiting(); n != 0 {
		t.Errorf("%d places left behind", n)
	}
	if diff := cmp.Diff(map[string]uint32{}, r.inFlight()); diff != "" {
		t.Errorf("in flight (-want +got):\n%s", diff)
	}
}
