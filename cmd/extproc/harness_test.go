package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/reason"

	"skipper/envoy/envoytest"
	"skipper/xds"
	"skipper/xds/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testShards keeps Envoy's start short.
const testShards = 2

// plane stands in for a controller: pods are handed out in order.
type plane struct {
	skipperpb.UnimplementedControllerServiceServer
	xds   *server.Server
	addr  string
	grpc  *grpc.Server
	creds credentials.TransportCredentials

	// gate, if set, keeps GetInstance waiting until it is closed.
	gate chan struct{}
	// late are pods that Envoy is not told of until tell is called.
	late []string

	mu        sync.Mutex
	served    chan struct{}
	givenUp   int      // questions whose caller left
	all, pods []string // addresses, and those not handed out yet
	protocol  xds.Protocol
	version   uint64
	instances map[string][]*skipperpb.Instance
	asked     int
	released  []string
	beats     []*skipperpb.HeartbeatRequest
}

func newPlane(t testing.TB, pods ...string) *plane {
	t.Helper()
	return newSecurePlane(t, insecure.NewCredentials(), pods...)
}

func newSecurePlane(t testing.TB, creds credentials.TransportCredentials, pods ...string) *plane {
	t.Helper()
	p := &plane{all: pods, pods: pods}
	p.open(t, creds)
	return p
}

// open starts to serve the pods that p has.
func (p *plane) open(t testing.TB, creds credentials.TransportCredentials) {
	t.Helper()
	p.creds, p.protocol, p.instances = creds, xds.HTTP1, map[string][]*skipperpb.Instance{}
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = ln.Addr().String()
	p.start(t, ln)
	t.Cleanup(p.stop)
}

func (p *plane) start(t testing.TB, ln net.Listener) {
	t.Helper()
	p.xds = server.New(server.Options{Shards: testShards, Source: p})
	p.xds.Apply(server.Change{Upsert: p.endpoints()})
	p.xds.Open()
	p.grpc = grpc.NewServer(append(server.ServerOptions(), grpc.Creds(p.creds))...)
	p.xds.Register(p.grpc)
	skipperpb.RegisterControllerServiceServer(p.grpc, p)
	p.served = make(chan struct{})
	go func(g *grpc.Server, served chan struct{}) {
		defer close(served)
		_ = g.Serve(ln) // ends with stop
	}(p.grpc, p.served)
}

// endpoints are all pods, which Envoy knows before they are handed out.
func (p *plane) endpoints() []server.Endpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []server.Endpoint
	for _, addr := range p.all {
		if slices.Contains(p.late, addr) {
			continue
		}
		out = append(out, server.Endpoint{UID: "uid-" + addr, Addr: addr, Protocol: p.protocol})
	}
	return out
}

func (p *plane) stop() {
	p.grpc.Stop()
	p.xds.Close()
	<-p.served
}

// restart comes back at the same address with all that was known.
func (p *plane) restart(t testing.TB) {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	p.start(t, ln)
}

// Instances implements server.Source.
func (p *plane) Instances(name string) (*skipperpb.FunctionInstances, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listLocked(name), true
}

func (p *plane) listLocked(name string) *skipperpb.FunctionInstances {
	return &skipperpb.FunctionInstances{Name: name, Instances: p.instances[name], Version: p.version}
}

func (p *plane) GetInstance(ctx context.Context, r *skipperpb.GetInstanceRequest) (*skipperpb.GetInstanceResponse, error) {
	if p.gate != nil {
		select {
		case <-p.gate:
		case <-ctx.Done():
			see(p, func() int { p.givenUp++; return p.givenUp })
			return nil, reason.Error(codes.DeadlineExceeded, reason.HoldTimeout, "no pod became ready")
		}
	}
	i, list, err := p.assign(r.GetFunction(), r.GetExcludeInstanceNames())
	if err != nil {
		return nil, err
	}
	p.xds.Apply(server.Change{Instances: []*skipperpb.FunctionInstances{list}})
	return &skipperpb.GetInstanceResponse{Instance: i}, nil
}

// tell makes all pods known to Envoy.
func (p *plane) tell() {
	p.mu.Lock()
	p.late = nil
	p.mu.Unlock()
	p.xds.Apply(server.Change{Upsert: p.endpoints()})
}

// assign answers with a ready instance, else with a pod from the pool, else with
// a ready instance that was to be left out.
func (p *plane) assign(f *skipperpb.Function, exclude []string) (*skipperpb.Instance, *skipperpb.FunctionInstances, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	name := xds.InstancesName(fn.KeyOf(f))
	if ready := p.instances[name]; len(ready) > 0 && !f.GetOneshot() {
		n := slices.IndexFunc(ready, func(i *skipperpb.Instance) bool { return !slices.Contains(exclude, i.GetName()) })
		if n >= 0 || len(p.pods) == 0 {
			return ready[max(n, 0)], p.listLocked(name), nil
		}
	}
	if len(p.pods) == 0 {
		return nil, nil, reason.Error(codes.ResourceExhausted, reason.LimitReached, "the pool is empty")
	}
	addr := p.pods[0]
	p.pods = p.pods[1:]
	p.version++
	uid := "uid-" + addr
	i := &skipperpb.Instance{
		Function: f, Name: "pod-" + addr, Uid: uid, Addr: addr, Version: p.version,
		Cluster: xds.ClusterOf(p.protocol, uid, testShards),
	}
	p.instances[name] = append(p.instances[name], i)
	return i, p.listLocked(name), nil
}

func (p *plane) ReleaseInstance(_ context.Context, r *skipperpb.ReleaseInstanceRequest) (*skipperpb.ReleaseInstanceResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = append(p.released, r.GetInstance().GetUid())
	return &skipperpb.ReleaseInstanceResponse{}, nil
}

func (p *plane) Heartbeat(_ context.Context, r *skipperpb.HeartbeatRequest) (*skipperpb.HeartbeatResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beats = append(p.beats, r)
	return &skipperpb.HeartbeatResponse{}, nil
}

// see reads a value under the lock.
func see[T any](p *plane, f func() T) T {
	p.mu.Lock()
	defer p.mu.Unlock()
	return f()
}

// saidGoodbye tells whether there was one. A heartbeat that was under way then may
// come after it.
func (p *plane) saidGoodbye() bool {
	return see(p, func() bool { return slices.ContainsFunc(p.beats, (*skipperpb.HeartbeatRequest).GetGoodbye) })
}

// inFlight is what the last heartbeat said, -1 before the first one.
func (p *plane) inFlight() int {
	return see(p, func() int {
		if len(p.beats) == 0 {
			return -1
		}
		n := 0
		for _, b := range p.beats[len(p.beats)-1].GetHeartbeats() {
			n += int(b.GetInFlightRequests())
		}
		return n
	})
}

// sidecar is extproc as run starts it.
type sidecar struct {
	cfg   *config
	ended chan error
	stop  context.CancelFunc
}

func startSidecar(t testing.TB, p *plane, change func(*config)) *sidecar {
	t.Helper()
	host, port, err := net.SplitHostPort(p.addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	cfg := defaults()
	cfg.controllerHost, cfg.controllerPort = host, uint16(n)
	cfg.listen = filepath.Join(envoytest.SocketDir(t), "extproc.sock")
	cfg.webHost, cfg.webPort = "127.0.0.1", envoytest.FreePorts(t, 1)[0]
	cfg.routerIP, cfg.envoyNodeID = "10.9.9.9", "envoy-1"
	cfg.heartbeatInterval = 50 * time.Millisecond
	cfg.logLevel, cfg.plaintext = "error", true
	if change != nil {
		change(cfg)
	}
	if err := cfg.validate(); err != nil {
		t.Fatal(err)
	}
	return runSidecar(t, cfg)
}

func runSidecar(t testing.TB, cfg *config) *sidecar {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &sidecar{cfg: cfg, ended: make(chan error, 1), stop: cancel}
	go func() { s.ended <- run(ctx, cfg) }()
	t.Cleanup(func() { s.end(t) })
	envoytest.Eventually(t, "extproc is ready", func() bool { return s.get(t, "/readyz") == http.StatusOK })
	return s
}

// end stops extproc as SIGTERM does; twice is harmless.
func (s *sidecar) end(t testing.TB) {
	t.Helper()
	s.stop()
	if err, first := <-s.ended; first {
		if err != nil {
			t.Errorf("extproc ended with %v", err)
		}
		close(s.ended)
	}
}

// get returns a status, 0 if nobody answers.
func (s *sidecar) get(t testing.TB, path string) int {
	t.Helper()
	status, _ := s.fetch(t, path)
	return status
}

func (s *sidecar) metrics(t testing.TB) string {
	t.Helper()
	_, body := s.fetch(t, "/metrics")
	return body
}

// value is a metric's, with its labels; 0 while it is not served.
func (s *sidecar) value(t testing.TB, metric string) float64 {
	t.Helper()
	_, rest, _ := strings.Cut(s.metrics(t), "\n"+metric+" ")
	line, _, found := strings.Cut(rest, "\n")
	if !found {
		return 0
	}
	v, err := strconv.ParseFloat(line, 64)
	if err != nil {
		t.Errorf("read %s: %v", metric, err)
	}
	return v
}

func (s *sidecar) fetch(t testing.TB, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", s.cfg.webPort, path), nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return 0, ""
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("read %s: %v", path, err)
	}
	return res.StatusCode, string(body)
}

// dial is Envoy's connection to extproc.
func (s *sidecar) dial(t testing.TB) extprocv3.ExternalProcessorClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+s.cfg.listen, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return extprocv3.NewExternalProcessorClient(conn)
}

func function(tenant string) *skipperpb.Function {
	return &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: tenant, Scale: &skipperpb.Scale{MaxInstances: 3}}
}

func oneshot() *skipperpb.Function {
	f := function("t")
	f.Oneshot = true
	return f
}
