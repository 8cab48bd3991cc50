package loads

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// said is one call of the sink.
type said struct {
	Stream
	busy  []Busy
	ended bool
}

// world is a server and what its sink has heard.
type world struct {
	t      *testing.T
	server *Server
	client loadstatsv3.LoadReportingServiceClient
	heard  chan said

	mu    sync.Mutex
	times []time.Time // of reports; guarded by mu
}

func (w *world) Reported(s Stream, received time.Time, busy []Busy) {
	w.mu.Lock()
	w.times = append(w.times, received)
	w.mu.Unlock()
	w.heard <- said{Stream: s, busy: busy}
}

func (w *world) Ended(s Stream) { w.heard <- said{Stream: s, ended: true} }

func newWorld(t *testing.T, o Options) *world {
	t.Helper()
	w := &world{t: t, heard: make(chan said, 100)}
	o.Sink = w
	w.server = New(o)
	l, g := bufconn.Listen(1<<16), grpc.NewServer()
	w.server.Register(g)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///loads", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	w.client = loadstatsv3.NewLoadReportingServiceClient(conn)
	t.Cleanup(func() {
		_ = conn.Close()
		w.server.Close()
		g.Stop()
		<-done
	})
	return w
}

// envoy is a client's stream.
type envoy struct {
	t *testing.T
	grpc.BidiStreamingClient[loadstatsv3.LoadStatsRequest, loadstatsv3.LoadStatsResponse]
	leave context.CancelFunc
}

func (w *world) open() *envoy {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	w.t.Cleanup(cancel)
	s, err := w.client.StreamLoadStats(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return &envoy{w.t, s, cancel}
}

// hello opens a stream and waits for the answer.
func (w *world) hello(node string) *envoy {
	w.t.Helper()
	e := w.open()
	e.send(message(node))
	if _, err := e.Recv(); err != nil {
		w.t.Fatal(err)
	}
	return e
}

func (e *envoy) send(r *loadstatsv3.LoadStatsRequest) {
	e.t.Helper()
	if err := e.Send(r); err != nil {
		e.t.Fatal(err)
	}
}

// next is the next call of the sink.
func (w *world) next() said {
	w.t.Helper()
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	select {
	case s := <-w.heard:
		return s
	case <-timeout.C:
		w.t.Fatal("the sink heard nothing")
		return said{}
	}
}

func message(node string, clusters ...*endpointv3.ClusterStats) *loadstatsv3.LoadStatsRequest {
	r := &loadstatsv3.LoadStatsRequest{ClusterStats: clusters}
	if node != "" {
		r.Node = &corev3.Node{Id: node}
	}
	return r
}

func cluster(name string, endpoints ...*endpointv3.UpstreamEndpointStats) *endpointv3.ClusterStats {
	c := &endpointv3.ClusterStats{ClusterName: name}
	if len(endpoints) > 0 {
		c.UpstreamLocalityStats = []*endpointv3.UpstreamLocalityStats{{UpstreamEndpointStats: endpoints}}
	}
	return c
}

func at(ip string, port uint32, inProgress uint64) *endpointv3.UpstreamEndpointStats {
	return &endpointv3.UpstreamEndpointStats{
		TotalRequestsInProgress: inProgress,
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
		}}},
	}
}
