package stream

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/reason"

	"skipper/extproc/hold"
	"skipper/extproc/wire"
)

// leg is a stream without a network, for tests in virtual time. synctest.Wait
// stands between what a test does and what it expects of it.
type leg struct {
	grpc.ServerStream
	codec wire.Codec
	in    chan []byte
	end   chan error

	mu      sync.Mutex
	answers []*extprocv3.ProcessingResponse
	done    bool
}

func (l *leg) RecvMsg(m any) error {
	select {
	case b := <-l.in:
		return l.codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m)
	case err := <-l.end:
		return err
	}
}

func (l *leg) SendMsg(m any) error {
	out, err := l.codec.Marshal(m)
	if err != nil {
		return err
	}
	r := &extprocv3.ProcessingResponse{}
	if err := proto.Unmarshal(out.Materialize(), r); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, r)
	return nil
}

// answer is the last one that is not a plea for time; nil before it.
func (l *leg) answer() *extprocv3.ProcessingResponse {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.answers); n > 0 && l.answers[n-1].GetOverrideMessageTimeout() == nil {
		return l.answers[n-1]
	}
	return nil
}

// uid is the instance in the answer; empty where there is none.
func (l *leg) uid() string { return setHeader(l.answer(), wire.InstanceHeader) }

func (l *leg) id() string { return setHeader(l.answer(), wire.RequestHeader) }

func (l *leg) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}

func headersOf(kv ...string) []byte {
	m := &corev3.HeaderMap{}
	for i := 0; i < len(kv); i += 2 {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: kv[i], RawValue: []byte(kv[i+1])})
	}
	b, err := proto.Marshal(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: m}}})
	if err != nil {
		panic(err) // names and values are the test's own
	}
	return b
}

// virtual is a rig in a bubble of virtual time.
type virtual struct {
	*rig
	legs sync.WaitGroup
}

func inBubble(t *testing.T, c *fakeController, story func(*testing.T, *virtual), changes ...change) {
	synctest.Test(t, func(t *testing.T) {
		v := &virtual{rig: newCore(t, c, changes...)}
		story(t, v)
		v.legs.Wait()
		v.server.Wait()
		v.hall.Close()
	})
}

func (v *virtual) play(kv ...string) *leg {
	l := &leg{codec: wire.NewCodec(), in: make(chan []byte, 1), end: make(chan error, 1)}
	l.in <- headersOf(kv...)
	v.legs.Go(func() {
		_ = v.server.Process(l) // how it ended is known to the test
		l.mu.Lock()
		defer l.mu.Unlock()
		l.done = true
	})
	synctest.Wait()
	return l
}

func (v *virtual) first(f *skipperpb.Function) *leg {
	return v.play(wire.FunctionHeader, string(fn.Marshal(f)))
}

func (v *virtual) later(id, attempts string) *leg {
	return v.play(wire.RequestHeader, id, "x-envoy-attempt-count", attempts)
}

func (l *leg) over() {
	l.end <- io.EOF
	synctest.Wait()
}

func (l *leg) breaks() {
	l.end <- errors.New("connection died")
	synctest.Wait()
}

func elapse(d time.Duration) {
	<-time.NewTimer(d).C // virtual
	synctest.Wait()
}

func slowly(o *Options) {
	o.Backoff, o.MaxBackoff, o.HoldTimeout = 100*time.Millisecond, 5*time.Second, 30*time.Second
}

func TestWaitsForEnvoyDouble(t *testing.T) {
	inBubble(t, &fakeController{answer: always}, func(t *testing.T, v *virtual) {
		start := time.Now()
		first := v.first(function("t"))
		legs := []*leg{first}
		var at []time.Duration
		for range 5 {
			l := v.later(first.id(), unknownToEnvoy)
			for l.answer() == nil {
				elapse(50 * time.Millisecond)
			}
			at = append(at, time.Since(start)/time.Millisecond)
			if l.uid() != first.uid() {
				t.Errorf("went to %s", l.uid())
			}
			legs = append(legs, l)
		}
		if diff := cmp.Diff([]time.Duration{100, 300, 700, 1500, 3100}, at); diff != "" {
			t.Errorf("answers in ms (-want +got):\n%s", diff)
		}
		for _, l := range legs {
			l.over()
		}
		v.expectInFlight(t, map[string]uint32{})
	}, func(o *Options, _ *hold.Options) { slowly(o) })
}

func TestWaitForEnvoyEndsWithTheHoldTime(t *testing.T) {
	inBubble(t, &fakeController{answer: always}, func(t *testing.T, v *virtual) {
		first := v.play(wire.FunctionHeader, string(fn.Marshal(function("t"))), "x-envoy-expected-rq-timeout-ms", "150")
		a := v.later(first.id(), unknownToEnvoy)
		elapse(100 * time.Millisecond)
		b := v.later(first.id(), unknownToEnvoy)
		elapse(50 * time.Millisecond)
		c := v.later(first.id(), unknownToEnvoy)
		if a.uid() == "" || b.uid() == "" || reasonHeader(c.answer()) != string(reason.NoInstance) {
			t.Errorf("answers are %v, %v and %v", a.answer(), b.answer(), c.answer())
		}
		for _, l := range []*leg{first, a, b, c} {
			l.over()
		}
	}, func(o *Options, _ *hold.Options) { slowly(o) })
}

func TestInstanceThatLeftDuringTheWaitIsNotUsed(t *testing.T) {
	inBubble(t, &fakeController{answer: always}, func(t *testing.T, v *virtual) {
		f := function("t")
		v.fill(f, 10, 1)
		first := v.first(f)
		l := v.later(first.id(), unknownToEnvoy)
		v.fill(f, 11, 2)
		elapse(100 * time.Millisecond)
		if l.uid() != "uid-2" {
			t.Errorf("went to %s", l.uid())
		}
		v.expectInFlight(t, map[string]uint32{"uid-2": 1})
		l.over()
		first.over()
		v.expectInFlight(t, map[string]uint32{})
	}, func(o *Options, _ *hold.Options) { slowly(o) })
}

func TestClientThatLeavesDuringTheWaitForEnvoy(t *testing.T) {
	inBubble(t, &fakeController{answer: always}, func(t *testing.T, v *virtual) {
		first := v.first(function("t"))
		l := v.later(first.id(), unknownToEnvoy)
		first.over()
		if l.answer() != nil || l.ended() {
			t.Error("the later stream ended before Envoy ended it")
		}
		l.over()
		v.expectInFlight(t, map[string]uint32{})
	}, func(o *Options, _ *hold.Options) { slowly(o) })
}

func TestInstanceThatEnvoyDoesNotKnowYieldsEvenToOneInQuarantine(t *testing.T) {
	inBubble(t, &fakeController{answer: always}, func(t *testing.T, v *virtual) {
		f := function("t")
		v.fill(f, 10, 1)
		legs := []*leg{v.first(f)}
		v.fill(f, 11, 1, 2)
		for _, i := range v.table.Function(headerOf(f)).View().Instances {
			if i.UID == "uid-2" {
				i.Fail(time.Now(), time.Hour)
				i.Fail(time.Now(), time.Hour)
			}
		}
		var got []string
		for range 4 {
			l := v.later(legs[0].id(), unknownToEnvoy)
			elapse(time.Second)
			got, legs = append(got, l.uid()), append(legs, l)
		}
		if diff := cmp.Diff([]string{"uid-1", "uid-1", "uid-1", "uid-2"}, got); diff != "" {
			t.Errorf("instances (-want +got):\n%s", diff)
		}
		for _, l := range legs {
			l.over()
		}
	}, func(o *Options, _ *hold.Options) { slowly(o) })
}

func TestStopRefusesThoseWhoWaitForEnvoy(t *testing.T) {
	inBubble(t, &fakeController{answer: always}, func(t *testing.T, v *virtual) {
		first := v.first(function("t"))
		l := v.later(first.id(), unknownToEnvoy)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		v.server.Drain(ctx)
		synctest.Wait()
		if reasonHeader(l.answer()) != string(reason.ShuttingDown) {
			t.Errorf("answered with %v", l.answer())
		}
		l.over()
		first.over()
	}, func(o *Options, _ *hold.Options) { slowly(o) })
}

// spread is where n requests go that serve well.
func (v *virtual) spread(f *skipperpb.Function, n int) map[string]int {
	out := map[string]int{}
	for range n {
		l := v.first(f)
		out[l.uid()]++
		l.over()
	}
	return out
}

func TestSecondSignBringsQuarantine(t *testing.T) {
	inBubble(t, &fakeController{answer: always}, func(t *testing.T, v *virtual) {
		f := function("t")
		v.fill(f, 10, 1)
		a, b := v.first(f), v.first(f)
		v.fill(f, 11, 1, 2, 3)
		legs := []*leg{a, b, v.later(a.id(), triedAndFailed)}
		if got := v.spread(f, 100); got["uid-1"] == 0 {
			t.Error("one sign is enough to avoid an instance")
		}
		legs = append(legs, v.later(b.id(), triedAndFailed))
		for _, l := range legs {
			l.over()
		}
		if got := v.spread(f, 100); got["uid-1"] != 0 {
			t.Errorf("%d requests went to the instance in quarantine", got["uid-1"])
		}
		elapse(10 * time.Second)
		if got := v.spread(f, 100); got["uid-1"] == 0 {
			t.Error("no request went to the instance after its quarantine")
		}
		if n := v.metric(t, "skipper_extproc_quarantines_total", ""); n != 1 {
			t.Errorf("%v quarantines counted, want 1", n)
		}
	}, func(o *Options, _ *hold.Options) { slowly(o) })
}

func TestQuarantineYieldsToNeedAndEndsWithSuccess(t *testing.T) {
	inBubble(t, &fakeController{answer: always}, func(t *testing.T, v *virtual) {
		f := function("t")
		v.fill(f, 10, 1)
		only := v.table.Function(headerOf(f)).View().Instances[0]
		only.Fail(time.Now(), 10*time.Second)
		only.Fail(time.Now(), 10*time.Second)
		elapse(time.Millisecond)
		l := v.first(f)
		if l.uid() != only.UID || !only.Quarantined(time.Now()) {
			t.Errorf("went to %s, quarantined %t", l.uid(), only.Quarantined(time.Now()))
		}
		l.over()
		if only.Quarantined(time.Now()) {
			t.Error("the instance serves, and is in quarantine still")
		}
		if u := v.table.Usage(time.Now()); u[0].Failures["uid-1"] != 2 {
			t.Errorf("failures to report: %v", u[0].Failures)
		}
	}, func(o *Options, _ *hold.Options) { slowly(o) })
}
