package inflight

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"skipper/controller/heartbeat"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/xds"
	"skipper/xds/loads"
)

// A cell as large as it is made for: 50,000 endpoints, 5,000 of them at work.
const (
	cellPods = 50_000
	cellBusy = 5_000
)

// cell is a store that knows all pods, and what is reported of the busy ones.
func cell(b *testing.B) (*Store, []loads.Busy) {
	b.Helper()
	view, addresses := pool.NewView(), NewAddresses(xds.DefaultShards)
	s := New(Config{
		Pods: view, Addresses: addresses, Heartbeats: heartbeat.NewStore(timeout, heartbeat.Limits{}), Expiry: expiry,
		Protected: func(time.Time) bool { return false }, Registerer: prometheus.NewRegistry(), Log: zap.NewNop(),
	})
	report := make([]loads.Busy, 0, cellBusy)
	for i := range cellPods {
		p := instance(uuid.NewString(), fmt.Sprintf("10.%d.%d.1", i/250, i%250))
		view.Apply(p)
		addresses.Observe(pool.Event{New: &p})
		if i < cellBusy {
			report = append(report, loads.Busy{Cluster: xds.ShardClusterOf(p.Protocol, p.UID, xds.DefaultShards), Addr: p.Addr(), InProgress: 3})
		}
	}
	return s, report
}

// BenchmarkReported is what one report costs, each second for each Envoy.
func BenchmarkReported(b *testing.B) {
	s, report := cell(b)
	b.ReportAllocs()
	for b.Loop() {
		s.Reported(stream("a", 1), start, report)
	}
}

// BenchmarkShare is what telling costs the sender, each second: once to build
// it, and once for each member to encode it.
func BenchmarkShare(b *testing.B) {
	s, report := cell(b)
	s.Reported(stream("a", 1), start, report)
	b.ReportAllocs()
	var bytes int
	for b.Loop() {
		bytes = 0
		for _, m := range s.Share("10.0.0.1", start) {
			wire, err := proto.Marshal(m)
			if err != nil {
				b.Fatal(err)
			}
			bytes += len(wire)
		}
	}
	b.ReportMetric(float64(bytes), "bytes")
}

// BenchmarkHear is what being told costs, each second for each other replica.
func BenchmarkHear(b *testing.B) {
	s, report := cell(b)
	s.Reported(stream("a", 1), start, report)
	wire, err := proto.Marshal(s.Share("10.0.0.2", start)[0])
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		var r skipperpb.ShareLoadRequest
		if err := proto.Unmarshal(wire, &r); err != nil {
			b.Fatal(err)
		}
		if err := s.Hear(&r, start); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInFlightSince is what one look at one pod costs, with as many Envoys
// as a large cell has.
func BenchmarkInFlightSince(b *testing.B) {
	s, report := cell(b)
	for i := range 20 {
		s.Reported(stream(fmt.Sprint("e", i), uint64(i)), start, report)
	}
	inFlight, _ := s.cfg.Addresses.Resolve(report[:1])
	b.ReportAllocs()
	for uid := range inFlight {
		for b.Loop() {
			if n, _, _ := s.since(uid, start.Add(-1), start); n != 60 {
				b.Fatal(n)
			}
		}
	}
}
