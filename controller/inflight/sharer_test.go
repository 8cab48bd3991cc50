package inflight

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"skipper/controller/forward"
	skipperpb "skipper/proto"
	"skipper/xds/loads"
)

// members answers shares in the sharer's process.
type members struct {
	mu      sync.Mutex
	taken   map[string]int // messages by member
	running map[string]int
	most    int // calls to one member at a time
}

func (m *members) Members() []string { return []string{"dead", "good", "stuck"} }

func (m *members) note(ip string, calls int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running[ip] += calls
	m.most = max(m.most, m.running[ip])
}

func (m *members) Call(ctx context.Context, ip string, _ func(context.Context, skipperpb.ReplicaServiceClient) error) error {
	m.note(ip, 1)
	defer m.note(ip, -1)
	switch ip {
	case "dead":
		return status.Error(codes.Unavailable, "nobody there")
	case "stuck":
		<-ctx.Done()
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken[ip]++
	return nil
}

func TestSlowAndDeadMembersHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.store.Reported(stream("a", 1), time.Now(), nil)
		m := &members{taken: map[string]int{}, running: map[string]int{}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
		defer cancel()
		if err := NewSharer(w.store, m, "self").Run(ctx); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]int{"good": 10}, m.taken); diff != "" || m.most != 1 || m.running["stuck"] != 0 {
			t.Errorf("%s, %d at a time, %d left", diff, m.most, m.running["stuck"])
		}
		got := map[string]float64{}
		for _, o := range []string{sent, failed, skipped} {
			got[o] = testutil.ToFloat64(w.store.metrics.shares.WithLabelValues(o))
		}
		// The stuck one is told at 1, 3, ... or one tick later, where its
		// timeout and the tick meet.
		if got[sent] != 10 || got[failed] < 13 || got[skipped] < 5 || got[failed]+got[skipped] != 20 {
			t.Errorf("outcomes %v", got)
		}
	})
}

// replica is a store that others reach over gRPC.
type replica struct {
	skipperpb.UnimplementedReplicaServiceServer
	*world
	listener *bufconn.Listener
	peers    *forward.Peers
}

func (r *replica) ShareLoad(_ context.Context, in *skipperpb.ShareLoadRequest) (*skipperpb.ShareLoadResponse, error) {
	return &skipperpb.ShareLoadResponse{}, r.store.Hear(in, time.Now())
}

// startReplicas runs two replicas that share until the end of the test.
func startReplicas(t *testing.T) map[string]*replica {
	t.Helper()
	all := map[string]*replica{}
	for _, ip := range []string{"10.0.0.1", "10.0.0.2"} {
		all[ip] = &replica{world: newWorld(t), listener: bufconn.Listen(1 << 16)}
	}
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		return all[host].listener.DialContext(ctx)
	}
	for ip, r := range all {
		r.serve(t)
		r.peers = forward.NewPeers(forward.PeersConfig{
			Self: ip, Port: 50051, Metrics: forward.NewMetrics(prometheus.NewRegistry()), Log: zap.NewNop(),
			Dial: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial)},
		})
		r.peers.Set("10.0.0.1", "10.0.0.2")
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- NewSharer(r.store, r.peers, ip).Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			<-done
			r.peers.Close()
		})
	}
	return all
}

func (r *replica) serve(t *testing.T) {
	g := grpc.NewServer()
	skipperpb.RegisterReplicaServiceServer(g, r)
	healthpb.RegisterHealthServer(g, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- g.Serve(r.listener) }()
	t.Cleanup(func() {
		g.Stop()
		<-done
	})
}

func TestReplicasTellEachOther(t *testing.T) {
	all := startReplicas(t)
	p := instance("p", "10.1.0.1")
	one, two := all["10.0.0.1"], all["10.0.0.2"]
	one.add(p)
	two.add(p)
	one.store.Reported(stream("a", 1), time.Now(), []loads.Busy{busy(p, 2)})
	two.store.Reported(stream("b", 1), time.Now(), []loads.Busy{busy(p, 3)})
	for _, r := range all {
		r.until("both Envoys count", func() bool { n, _, _ := r.store.InFlightSince("p", time.Now()); return n == 5 })
	}
	one.store.Ended(stream("a", 1))
	two.store.Reported(stream("a", 2), time.Now().Add(transit), nil) // moved there
	for _, r := range all {
		r.until("the new word replaces the old one", func() bool { n, _, _ := r.store.InFlightSince("p", time.Now()); return n == 3 })
	}
}

func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	deadline, tick := time.NewTimer(time.Minute), time.NewTicker(10*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			w.t.Fatalf("waited in vain until %s", what)
		}
	}
}
