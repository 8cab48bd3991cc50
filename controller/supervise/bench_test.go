package supervise

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"skipper/controller/heartbeat"
	"skipper/controller/pool"
	"skipper/controller/scale"
	"skipper/controller/usage"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// steady has every pod use as much as it should.
type steady struct{}

func (steady) Metered(string) bool { return true }

func (steady) Of(string, string, time.Time) (usage.Usage, bool) {
	return usage.Usage{CPUMilli: 500, MemoryMiB: 256}, true
}

// content asks no pod to accept anything, and makes none: its functions have what
// they need.
type content struct{ acquirer }

func (content) TakeUp(context.Context, fn.Key) map[string]bool { return nil }

// crowd is 10,000 functions with so many instances each, that so many routers
// report.
func crowd(instances, routers int) (*Supervisors, []fn.Key, time.Time) {
	view, beats, now := pool.NewView(), heartbeat.NewStore(timeout, heartbeat.Limits{}), time.Now()
	s := New(Options{
		Policy:   scale.Policy{HeartbeatTimeout: timeout, Stabilization: timeout, Tolerance: 0.1, StartedAt: now.Add(-time.Hour)},
		Interval: interval, AssignTimeout: assigning, Replacements: 10,
	}, Deps{
		Pods: view, Heartbeats: beats, Responsible: func(fn.Key) bool { return true }, Usage: steady{},
		Acquirer: content{}, Logger: zap.NewNop(), Registerer: prometheus.NewRegistry(),
	})
	for _, r := range []pool.ReplicaSet{{Name: "new", Replicas: 5, Revision: 2}, {Name: "old", Revision: 1}} {
		r.Namespace, r.Deployment = "prod", "echo"
		view.ApplyReplicaSet(r)
	}
	keys := make([]fn.Key, 10_000)
	reports := make([]*skipperpb.Heartbeat, len(keys))
	for i := range keys {
		f := function(fmt.Sprint("t", i), 0, 5, 10)
		f.Scale.TargetCpuUsageMilli, f.Scale.TargetMemoryUsageMib = 500, 256
		keys[i], reports[i] = fn.KeyOf(f), &skipperpb.Heartbeat{Function: f, InFlightRequests: uint32(instances)}
		for n := range instances {
			view.Apply(ofSet(ready(f, fmt.Sprint(i, "-", n), now.Add(-time.Minute)), "new"))
		}
		s.Touch(f)
	}
	for r := range routers {
		beats.Record(&skipperpb.HeartbeatRequest{RouterIp: fmt.Sprint("10.9.0.", r), Heartbeats: reports}, now)
	}
	return s, keys, now
}

// BenchmarkConverge is one round of one function among 10,000.
func BenchmarkConverge(b *testing.B) {
	for _, c := range []struct {
		name               string
		instances, routers int
	}{{"1 instance, 1 router", 1, 1}, {"5 instances, 10 routers", 5, 10}} {
		b.Run(c.name, func(b *testing.B) {
			s, keys, now := crowd(c.instances, c.routers)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.converge(b.Context(), keys[i%len(keys)], now)
			}
		})
	}
}

// BenchmarkHeard is one heartbeat of one function among 10,000.
func BenchmarkHeard(b *testing.B) {
	s, keys, _ := crowd(1, 1)
	fs := make([]*skipperpb.Function, len(keys))
	for i, k := range keys {
		fs[i] = s.supervisors[k].force.current
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Heard(fs[i%len(fs)])
	}
}
