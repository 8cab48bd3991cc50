package server

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"skipper/controller/heartbeat"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
)

// FuzzHeartbeat feeds messages as they come off the wire: whatever is in them,
// nothing breaks, what is remembered is bounded and what was refused leaves no trace.
func FuzzHeartbeat(f *testing.F) {
	for _, r := range []*skipperpb.HeartbeatRequest{
		{},
		{RouterIp: "10.9.0.1", Goodbye: true},
		{RouterId: "r", RouterIp: "10.9.0.1", Heartbeats: []*skipperpb.Heartbeat{
			{Function: function("t"), InFlightRequests: 3, InFlightByInstance: map[string]uint32{"a": 1, "": 2}}, {}, {Function: function("")},
		}},
	} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	limits := heartbeat.Limits{Routers: 2, FunctionsPerRouter: 2, InstancesPerReport: 2}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &skipperpb.HeartbeatRequest{}
		if proto.Unmarshal(b, r) != nil {
			t.Skip()
		}
		p := &parts{}
		s := New(Options{Namespaces: []string{"prod"}}, Deps{
			Pods: pool.NewView(), Heartbeats: heartbeat.NewStore(time.Minute, limits),
			Acquirer: p, Retirer: p, Supervisors: p, Forwarder: told{parts: p}, Logger: zap.NewNop(), Registerer: prometheus.NewRegistry(),
		})
		_, err := s.Heartbeat(t.Context(), r)
		if code := status.Code(err); code != codes.OK && code != codes.InvalidArgument {
			t.Fatalf("Heartbeat = %v", err)
		}
		if err != nil && len(p.heard) > 0 || s.Heartbeats.Routers() > 1 {
			t.Fatalf("%d heard of and %d routers after %v", len(p.heard), s.Heartbeats.Routers(), err)
		}
	})
}
