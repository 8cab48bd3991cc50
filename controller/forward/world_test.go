package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	"skipper/controller/ring"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// world is some replicas that reach each other through real gRPC connections.
type world struct {
	t        *testing.T
	patience time.Duration // DeadAfter; 0: the default
	replicas map[string]*replica
	ips      []string
	conns    connections
}

// connections are all that were made between replicas.
type connections struct {
	mu  sync.Mutex
	all []net.Conn // guarded by mu
}

func (c *connections) add(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, conn)
}

func (c *connections) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		_ = conn.Close()
	}
	c.all = nil
}

// replica is a controller of which only the forwarding is real.
type replica struct {
	skipperpb.UnimplementedControllerServiceServer
	ip       string
	ring     *ring.Members
	peers    *Peers
	forward  *Forwarder
	listener *bufconn.Listener
	server   *grpc.Server

	mu      sync.Mutex
	execute func(context.Context) error // what executing a call does
	silent  bool                        // accepts connections, answers nothing
	calls   []string                    // executed: the function's tenant
	beats   chan *skipperpb.HeartbeatRequest
	hold    chan struct{} // heartbeats are answered when it is closed; nil: at once
}

const port = 50051

func newWorld(t *testing.T, n int) *world {
	t.Helper()
	return newWorldWith(t, n, 0)
}

// newPatientWorld is for tests that are not about silence, with so many replicas
// in one process that a starved machine might seem silent.
func newPatientWorld(t *testing.T, n int) *world {
	t.Helper()
	return newWorldWith(t, n, time.Minute)
}

func newWorldWith(t *testing.T, n int, patience time.Duration) *world {
	t.Helper()
	w := &world{t: t, patience: patience, replicas: map[string]*replica{}}
	for i := range n {
		w.ips = append(w.ips, fmt.Sprint("10.0.0.", i+1))
	}
	for _, ip := range w.ips {
		w.start(ip)
	}
	w.join(w.ips...)
	return w
}

func (w *world) start(ip string) {
	r := &replica{
		ip: ip, ring: ring.NewMembers(50 * time.Millisecond), listener: bufconn.Listen(1 << 16),
		server: grpc.NewServer(), beats: make(chan *skipperpb.HeartbeatRequest, 10_000),
		execute: func(context.Context) error { return nil },
	}
	metrics := NewMetrics(prometheus.NewRegistry())
	r.peers = NewPeers(PeersConfig{
		Self: ip, Port: port, Dial: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(w.dial)},
		DeadAfter: w.patience, Metrics: metrics, Log: zap.NewNop(),
	})
	r.forward = New(Config{
		Self: ip, Ring: r.ring, Peers: r.peers, Serving: func() bool { return true }, Metrics: metrics, Log: zap.NewNop(),
	})
	skipperpb.RegisterControllerServiceServer(r.server, r)
	healthpb.RegisterHealthServer(r.server, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(r.listener) }()
	w.replicas[ip] = r
	w.t.Cleanup(func() {
		r.peers.Close()
		r.server.Stop()
		<-served
	})
}

// join tells every replica who is on the ring.
func (w *world) join(ips ...string) {
	for _, r := range w.replicas {
		r.peers.Set(ips...)
		r.ring.Set(ips...)
	}
}

// dial reaches a replica by its address; one that is silent never answers.
func (w *world) dial(ctx context.Context, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	r := w.replicas[host]
	if r == nil {
		return nil, errors.New("nobody lives there")
	}
	r.mu.Lock()
	silent := r.silent
	r.mu.Unlock()
	if silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	conn, err := r.listener.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	w.conns.add(conn)
	return &muteable{Conn: conn, replica: r}, nil
}

// muteable loses whatever is sent to a replica that has fallen silent.
type muteable struct {
	net.Conn
	replica *replica
}

func (m *muteable) Write(b []byte) (int, error) {
	m.replica.mu.Lock()
	silent := m.replica.silent
	m.replica.mu.Unlock()
	if silent {
		return len(b), nil
	}
	return m.Conn.Write(b)
}

func (r *replica) GetInstance(ctx context.Context, in *skipperpb.GetInstanceRequest) (*skipperpb.GetInstanceResponse, error) {
	answer, done, err := r.forward.GetInstance(ctx, in)
	if done || err != nil {
		return answer, err
	}
	r.mu.Lock()
	execute := r.execute
	r.calls = append(r.calls, in.GetFunction().GetTenant())
	r.mu.Unlock()
	if err := execute(ctx); err != nil {
		return nil, err
	}
	return &skipperpb.GetInstanceResponse{Instance: &skipperpb.Instance{Name: r.ip}}, nil
}

func (r *replica) Scale(ctx context.Context, in *skipperpb.ScaleRequest) (*skipperpb.ScaleResponse, error) {
	answer, done, err := r.forward.Scale(ctx, in)
	if done || err != nil {
		return answer, err
	}
	return &skipperpb.ScaleResponse{Instances: []*skipperpb.Instance{{Name: r.ip}}}, nil
}

func (r *replica) Heartbeat(_ context.Context, in *skipperpb.HeartbeatRequest) (*skipperpb.HeartbeatResponse, error) {
	r.mu.Lock()
	hold := r.hold
	r.mu.Unlock()
	r.forward.Heartbeat(in)
	r.beats <- in
	if hold != nil {
		<-hold
	}
	return &skipperpb.HeartbeatResponse{}, nil
}

func (r *replica) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *replica) executed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.calls)
}

// client calls a replica as a router does.
func (w *world) client(ip string) skipperpb.ControllerServiceClient {
	w.t.Helper()
	conn, err := grpc.NewClient(fmt.Sprintf("passthrough:///%s:%d", ip, port),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(w.dial))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return skipperpb.NewControllerServiceClient(conn)
}

// ownedBy is a function that the given members own, in that order.
func (w *world) ownedBy(owners ...string) *skipperpb.Function {
	r := ring.New(w.ips...)
	for i := 0; ; i++ {
		f := &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: fmt.Sprint("t", i)}
		passed := map[string]bool{}
		for _, owner := range owners {
			if ip, _ := r.OwnerWithout(fn.KeyOf(f).Hash(), func(ip string) bool { return passed[ip] }); ip == owner {
				passed[ip] = true
			}
		}
		if len(passed) == len(owners) {
			return f
		}
	}
}
