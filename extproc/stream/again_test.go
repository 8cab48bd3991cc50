package stream

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/reason"
	"skipper/xds"
)

// Values of x-envoy-attempt-count.
const (
	unknownToEnvoy = "1"
	triedAndFailed = "2"
)

// fill pushes pods with the given numbers, which are all that f has then.
func (r *rig) fill(f *skipperpb.Function, version uint64, pods ...int) {
	var list []*skipperpb.Instance
	for _, n := range pods {
		list = append(list, instance(f, n, version))
	}
	r.fillWith(f, version, list)
}

func (r *rig) fillWith(f *skipperpb.Function, version uint64, pods []*skipperpb.Instance) {
	r.table.Function(headerOf(f))
	r.table.Push(&skipperpb.FunctionInstances{Name: xds.InstancesName(fn.KeyOf(f)), Version: version, Instances: pods}, time.Now())
}

func (r *rig) expectInFlight(t testing.TB, want map[string]uint32) {
	t.Helper()
	if diff := cmp.Diff(want, r.inFlight()); diff != "" {
		t.Errorf("in flight (-want +got):\n%s", diff)
	}
}

func (c *call) refusedWith(t testing.TB, status int, r reason.Reason) {
	t.Helper()
	m := c.answer()
	if got := m.GetImmediateResponse().GetStatus().GetCode(); int(got) != status || reasonHeader(m) != string(r) {
		t.Errorf("answered with %v, want %d %s", m, status, r)
	}
}

// asked is a controller that records what it is asked to leave out.
type asked struct {
	mu       sync.Mutex
	excludes [][]string
}

func (a *asked) note(q *skipperpb.GetInstanceRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.excludes = append(a.excludes, q.GetExcludeInstanceNames())
}

func TestInstanceThatFailedIsNotTriedAgain(t *testing.T) {
	var a asked
	r := newRig(t, &fakeController{answer: func(_ context.Context, _ int, q *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
		a.note(q)
		return instance(q.GetFunction(), 9, 99), nil
	}})
	f := function("t")
	r.fill(f, 10, 1, 2, 3)
	first := r.ask(t, f)
	uid, id := first.sent()
	seen, calls := []string{uid}, []*call{first}
	for range 3 {
		c := r.again(t, id, triedAndFailed)
		uid, same := c.sent()
		if same != id {
			t.Errorf("the request has the id %s now, had %s", same, id)
		}
		r.expectInFlight(t, map[string]uint32{uid: 1})
		seen, calls = append(seen, uid), append(calls, c)
	}
	slices.Sort(seen)
	if diff := cmp.Diff([]string{"uid-1", "uid-2", "uid-3", "uid-9"}, seen); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([][]string{{"pod-1", "pod-2", "pod-3"}}, a.excludes); diff != "" {
		t.Errorf("excluded (-want +got):\n%s", diff)
	}
	for _, c := range slices.Backward(calls) {
		c.over()
	}
	r.expectInFlight(t, map[string]uint32{})
	if n := r.metric(t, "skipper_extproc_second_passes_total", "failed"); n != 3 {
		t.Errorf("%v second passes counted, want 3", n)
	}
	if n := r.metric(t, "skipper_extproc_in_flight_requests", ""); n != 0 {
		t.Errorf("%v requests in flight by metric", n)
	}
}

func TestInstanceUnknownToEnvoyIsTriedAgain(t *testing.T) {
	r := newRig(t, &fakeController{answer: always})
	f := function("t")
	r.fill(f, 10, 1, 2, 3)
	first := r.ask(t, f)
	uid, id := first.sent()
	for range 3 {
		c := r.again(t, id, unknownToEnvoy)
		if got := c.instance(); got != uid {
			t.Errorf("went to %s, want %s once more", got, uid)
		}
		c.over()
	}
	r.expectInFlight(t, map[string]uint32{uid: 1})
	c := r.again(t, id, unknownToEnvoy)
	if got := c.instance(); got == uid {
		t.Errorf("went to %s for the fifth time, though there are others", got)
	}
	first.over() // before the later stream
	r.expectInFlight(t, map[string]uint32{})
	c.over()
	if u := r.table.Usage(time.Now()); len(u[0].Failures) != 0 {
		t.Errorf("failures are reported of instances that were not tried: %v", u[0].Failures)
	}
}

func TestRequestThatIsNotKnownIsRefused(t *testing.T) {
	r := newRig(t, &fakeController{answer: always})
	first := r.ask(t, function("t"))
	_, id := first.sent()
	first.over()
	for _, id := range []string{id, "0123456789abcdef0123456789abcdef", "short", id + id} {
		c := r.again(t, id, triedAndFailed)
		c.refusedWith(t, http.StatusServiceUnavailable, reason.NoInstance)
		c.over()
	}
	if n := r.metric(t, "skipper_extproc_second_passes_total", "lost_record"); n != 4 {
		t.Errorf("%v lost records counted, want 4", n)
	}
	r.expectInFlight(t, map[string]uint32{})
}

func TestPassesAreBounded(t *testing.T) {
	for cause, want := range map[string]reason.Reason{unknownToEnvoy: reason.NoInstance, triedAndFailed: reason.ConnectFailed} {
		r := newRig(t, &fakeController{answer: always})
		first := r.ask(t, function("t"))
		_, id := first.sent()
		for range 5 {
			r.again(t, id, cause).instance()
		}
		last := r.again(t, id, cause)
		last.refusedWith(t, http.StatusServiceUnavailable, want)
		last.over()
		first.over()
		r.expectInFlight(t, map[string]uint32{})
	}
}

func TestOneshotGetsAFreshPodIfItsOwnFailed(t *testing.T) {
	r := newRig(t, &fakeController{answer: always})
	first := r.ask(t, oneshot())
	uid, id := first.sent()
	for _, want := range []string{uid, uid} {
		if got := r.again(t, id, unknownToEnvoy).instance(); got != want {
			t.Errorf("went to %s, want its own pod once more", got)
		}
	}
	if len(r.released) != 0 {
		t.Fatal("a pod was released that Envoy has not heard of yet")
	}
	second := r.again(t, id, triedAndFailed).instance()
	if second == uid {
		t.Errorf("went to %s, which failed", second)
	}
	if got := <-r.released; got != uid {
		t.Errorf("%s was released", got)
	}
	r.expectInFlight(t, map[string]uint32{second: 1})
	first.over()
	if got := <-r.released; got != second || len(r.released) != 0 {
		t.Errorf("%s was released, and %d more", got, len(r.released))
	}
	r.expectInFlight(t, map[string]uint32{})
}

func TestLaterStreamThatBreaksLeavesTheCount(t *testing.T) {
	r := newRig(t, &fakeController{answer: always})
	f := function("t")
	r.fill(f, 10, 1, 2)
	first := r.ask(t, f)
	_, id := first.sent()
	c := r.again(t, id, triedAndFailed)
	uid := c.instance()
	c.cancel()
	until(t, "the later stream is over", func() bool { return r.metric(t, "skipper_extproc_stream_ends_total", "lost") == 1 })
	r.expectInFlight(t, map[string]uint32{uid: 1})
	first.over()
	r.expectInFlight(t, map[string]uint32{})
}

func TestFirstStreamThatBreaksKeepsTheLeaseOfTheLastPass(t *testing.T) {
	r := newRig(t, &fakeController{answer: always})
	f := function("t")
	r.fill(f, 10, 1, 2)
	first := r.ask(t, f)
	_, id := first.sent()
	c := r.again(t, id, triedAndFailed)
	uid := c.instance()
	first.cancel()
	until(t, "the first stream is over", func() bool { return r.metric(t, "skipper_extproc_stream_ends_total", "lost") == 1 })
	c.over()
	r.expectInFlight(t, map[string]uint32{uid: 1})
	r.table.Sweep(time.Now().Add(2*time.Minute), true)
	r.expectInFlight(t, map[string]uint32{})
}

func TestRequestThatEndsDuringALaterPassLeavesTheHall(t *testing.T) {
	r := newRig(t, &fakeController{called: make(chan int, 1), answer: func(ctx context.Context, _ int, _ *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}})
	f := function("t")
	r.fill(f, 10, 1)
	first := r.ask(t, f)
	_, id := first.sent()
	c := r.again(t, id, triedAndFailed)
	<-r.called
	first.over()
	until(t, "nobody waits", func() bool { return r.hall.Waiting() == 0 })
	c.over()
	r.expectInFlight(t, map[string]uint32{})
}

func TestPushEndsTheWaitOfALaterPass(t *testing.T) {
	r := newRig(t, &fakeController{called: make(chan int, 1), answer: func(ctx context.Context, _ int, _ *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}})
	f := function("t")
	r.fill(f, 10, 1)
	first := r.ask(t, f)
	_, id := first.sent()
	c := r.again(t, id, triedAndFailed)
	<-r.called
	r.fill(f, 11, 1, 2)
	if got := c.instance(); got != "uid-2" {
		t.Errorf("went to %s", got)
	}
	c.over()
	first.over()
}

func TestInstanceThatFailedIsUsedIfTheControllerHasNoOther(t *testing.T) {
	r := newRig(t, &fakeController{answer: func(_ context.Context, _ int, q *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
		return instance(q.GetFunction(), 1, 10), nil
	}})
	f := function("t")
	r.fill(f, 10, 1)
	first := r.ask(t, f)
	_, id := first.sent()
	c := r.again(t, id, triedAndFailed)
	if got := c.instance(); got != "uid-1" {
		t.Errorf("went to %s", got)
	}
	r.expectInFlight(t, map[string]uint32{"uid-1": 1})
	c.over()
	first.over()
	r.expectInFlight(t, map[string]uint32{})
}

func TestControllerThatRefusesEndsThePasses(t *testing.T) {
	r := newRig(t, &fakeController{answer: func(context.Context, int, *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
		return nil, reason.Error(codes.ResourceExhausted, reason.LimitReached, "too many instances")
	}})
	f := function("t")
	r.fill(f, 10, 1)
	first := r.ask(t, f)
	_, id := first.sent()
	c := r.again(t, id, triedAndFailed)
	c.refusedWith(t, http.StatusTooManyRequests, reason.LimitReached)
	first.over()
	c.over()
	r.expectInFlight(t, map[string]uint32{})
}

func TestStaleTableIsNotUsedByALaterPass(t *testing.T) {
	r := newRig(t, &fakeController{answer: always})
	f := function("t")
	r.fill(f, 10, 7, 8)
	first := r.ask(t, f)
	_, id := first.sent()
	r.table.Sweep(time.Now().Add(2*time.Minute), false)
	if got := r.again(t, id, unknownToEnvoy).instance(); got != "uid-1" {
		t.Errorf("went to %s, want what the controller said just now", got)
	}
	if got := r.again(t, id, unknownToEnvoy).instance(); got != "uid-1" {
		t.Errorf("went to %s, want what the controller said before", got)
	}
	if got := r.again(t, id, triedAndFailed).instance(); got != "uid-2" {
		t.Errorf("went to %s, want another one from the controller", got)
	}
	first.over()
	r.expectInFlight(t, map[string]uint32{})
}
