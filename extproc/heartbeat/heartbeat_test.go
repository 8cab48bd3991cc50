package heartbeat

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	skipperpb "skipper/proto"

	"skipper/extproc/header"
	"skipper/extproc/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func function(tenant string) *skipperpb.Function {
	return &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: tenant, Scale: &skipperpb.Scale{MaxInstances: 3}}
}

func TestBatches(t *testing.T) {
	now := time.Unix(1000, 0)
	router := Router{IP: "10.0.0.1", ID: "id", EnvoyNodeID: "envoy", StartedAt: now.Add(-time.Minute)}
	hello := &skipperpb.HeartbeatRequest{RouterIp: "10.0.0.1", RouterId: "id", EnvoyNodeId: "envoy", RunningFor: durationpb.New(time.Minute)}
	usages := []table.Usage{
		{Function: function("b"), Total: 3, InFlight: map[string]uint32{"u1": 1, "u2": 2}},
		{Function: function("just-idle"), Idle: 15 * time.Second},
		{Function: function("failing"), Idle: time.Hour, Failures: map[string]uint32{"u4": 2}},
		{Function: function("idle"), Idle: 15*time.Second + 1},
		{Function: function("a"), Idle: time.Hour, Total: 1, InFlight: map[string]uint32{"u3": 1}},
	}
	beat := func(tenant string, n uint32, by map[string]uint32) *skipperpb.Heartbeat {
		return &skipperpb.Heartbeat{Function: function(tenant), Timestamp: timestamppb.New(now), InFlightRequests: n, InFlightByInstance: by}
	}
	failing := beat("failing", 0, nil)
	failing.FailuresByInstance = map[string]uint32{"u4": 2}
	full := proto.CloneOf(hello)
	full.Heartbeats = []*skipperpb.Heartbeat{
		beat("a", 1, map[string]uint32{"u3": 1}), beat("b", 3, map[string]uint32{"u1": 1, "u2": 2}), failing, beat("just-idle", 0, nil),
	}
	for _, row := range []struct {
		name   string
		usages []table.Usage
		want   *skipperpb.HeartbeatRequest
	}{{"in use", usages, full}, {"idle", usages[3:4], hello}, {"no function", nil, hello}} {
		got := Batches(row.usages, router, 5*time.Second, now)
		if diff := cmp.Diff([]*skipperpb.HeartbeatRequest{row.want}, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
	}
}

func TestBatchesAreBounded(t *testing.T) {
	var usages []table.Usage
	for n := range 1000 {
		f := function(fmt.Sprintf("t%04d", n))
		f.Metadata = strings.Repeat("x", 8000)
		usages = append(usages, table.Usage{Function: f})
	}
	seen := 0
	for _, r := range Batches(usages, Router{}, time.Second, time.Now()) {
		if size := proto.Size(r); size > 2*maxBatch {
			t.Errorf("a message has %d bytes", size)
		}
		seen += len(r.GetHeartbeats())
	}
	if seen != 1000 {
		t.Errorf("%d functions were named, want 1000", seen)
	}
}

// receiver is a controller that may be away.
type receiver struct {
	mu   sync.Mutex
	got  []*skipperpb.HeartbeatRequest
	away bool
}

func (r *receiver) Heartbeat(_ context.Context, m *skipperpb.HeartbeatRequest, _ ...grpc.CallOption) (*skipperpb.HeartbeatResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		return nil, status.Error(codes.Unavailable, "away")
	}
	r.got = append(r.got, m)
	return &skipperpb.HeartbeatResponse{}, nil
}

func (r *receiver) take() []*skipperpb.HeartbeatRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.got
	r.got = nil
	return out
}

func (r *receiver) setAway(away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = away
}

// named is how many of the messages that came name a function.
func (r *receiver) named() (named, all int) {
	got := r.take()
	for _, m := range got {
		if len(m.GetHeartbeats()) > 0 {
			named++
		}
	}
	return named, len(got)
}

func TestAFunctionDropsOutAfterThreeIdleIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := table.New(table.Options{Now: time.Now()})
		r := &receiver{}
		codesSeen := map[codes.Code]int{}
		o := Options{Client: r, Table: tab, Router: Router{ID: "id", EnvoyNodeID: "envoy"}, Interval: 5 * time.Second, Beat: func(c codes.Code) { codesSeen[c]++ }, Logger: zaptest.NewLogger(t)}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := Run(ctx, o); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if got := r.take(); len(got) != 1 || len(got[0].GetHeartbeats()) != 0 || got[0].GetRouterId() != "id" || got[0].GetEnvoyNodeId() != "envoy" {
			t.Errorf("at the start: %v, want one message that names the router", got)
		}
		tab.Function(header.Of(function("t")))
		<-time.NewTimer(time.Minute + time.Second).C // virtual
		if named, all := r.named(); named != 1+IdleIntervals || all != 12 {
			t.Errorf("%d heartbeats for one request in %d messages, want %d in 12", named, all, 1+IdleIntervals)
		}
		r.setAway(true)
		<-time.NewTimer(time.Minute).C // virtual
		synctest.Wait()
		if codesSeen[codes.Unavailable] != 12 {
			t.Errorf("codes are %v", codesSeen)
		}
		r.setAway(false)
		Goodbye(ctx, o)
		if got := r.take(); len(got) != 1 || !got[0].GetGoodbye() {
			t.Errorf("goodbye is %v", got)
		}
		cancel()
		running.Wait()
	})
}

func TestFailuresThatDidNotArriveAreToldAgain(t *testing.T) {
	tab := table.New(table.Options{Now: time.Now()})
	h := header.Of(function("t"))
	f := tab.Function(h)
	tab.Push(&skipperpb.FunctionInstances{Name: h.Name, Version: 1, Instances: []*skipperpb.Instance{{Uid: "u1", Addr: "10.0.0.1:80", Cluster: "c", Version: 1}}}, time.Now())
	r := &receiver{away: true}
	o := Options{Client: r, Table: tab, Interval: 5 * time.Second, Beat: func(codes.Code) {}, Logger: zaptest.NewLogger(t)}
	beat := func() {
		for _, m := range Batches(tab.Usage(time.Now()), o.Router, o.Interval, time.Now()) {
			o.send(t.Context(), m)
		}
	}
	f.View().Instances[0].Fail(time.Now(), time.Second)
	beat()
	r.away = false
	f.View().Instances[0].Fail(time.Now(), time.Second)
	beat()
	beat()
	var got []map[string]uint32
	for _, m := range r.take() {
		got = append(got, m.GetHeartbeats()[0].GetFailuresByInstance())
	}
	if diff := cmp.Diff([]map[string]uint32{{"u1": 2}, nil}, got); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
}
