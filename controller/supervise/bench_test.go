package supervise

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"skipper/controller/heartbeat"
	"skipper/controller/pool"
	"skipper/controller/scale"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// BenchmarkConverge is one round of a function with 5 instances among 10,000
// functions that 10 routers report.
func BenchmarkConverge(b *testing.B) {
	view, beats, now := pool.NewView(), heartbeat.NewStore(timeout, heartbeat.Limits{}), time.Now()
	s := New(Options{Policy: scale.Policy{HeartbeatTimeout: timeout, Stabilization: timeout, StartedAt: now}, Interval: interval, AssignTimeout: assigning}, Deps{
		Pods: view, Heartbeats: beats, Responsible: func(fn.Key) bool { return true },
		Logger: zap.NewNop(), Registerer: prometheus.NewRegistry(),
	})
	keys := make([]fn.Key, 10_000)
	reports := make([]*skipperpb.Heartbeat, len(keys))
	for i := range keys {
		f := function(fmt.Sprint("t", i), 5, 5, 10)
		keys[i], reports[i] = fn.KeyOf(f), &skipperpb.Heartbeat{Function: f, InFlightRequests: 4}
		for n := range 5 {
			view.Apply(ready(f, fmt.Sprint(i, "-", n), now))
		}
		s.Touch(f)
	}
	for r := range 10 {
		beats.Record(&skipperpb.HeartbeatRequest{RouterIp: fmt.Sprint("10.9.0.", r), Heartbeats: reports}, now)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.converge(b.Context(), keys[i%len(keys)], now)
	}
}
