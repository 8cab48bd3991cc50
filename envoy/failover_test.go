package envoy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"

	"skipper/envoy"
	"skipper/envoy/envoytest"
	"skipper/xds"
	"skipper/xds/server"
)

// replicaVariable makes the test program a controller at that address instead.
const replicaVariable = "SKIPPER_TEST_REPLICA"

// serveReplica serves the real xDS server with one pod until the process is
// killed, and writes a line for each stream.
func serveReplica(addr string) error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	x := server.New(server.Options{Shards: 2})
	x.Apply(server.Change{Upsert: []server.Endpoint{{UID: "uid-1", Addr: "192.0.2.1:80", Protocol: xds.HTTP1}}})
	x.Open()
	line := func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		fmt.Println("stream")
		return next(srv, s)
	}
	g := grpc.NewServer(append(server.ServerOptions(), grpc.StreamInterceptor(line))...)
	x.Register(g)
	return g.Serve(l)
}

// process is a replica in a process of its own.
type process struct {
	addr    string
	cmd     *exec.Cmd
	mu      sync.Mutex
	streams int
}

func startReplica(t *testing.T, addr string) *process {
	t.Helper()
	// The process outlives the test's context, which ends before clean-up.
	p := &process{addr: addr, cmd: exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])}
	p.cmd.Env = append(os.Environ(), replicaVariable+"="+addr)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	must(t, p.cmd.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.read(out)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may be dead already
		<-done
		_ = p.cmd.Wait() // says that it was killed
	})
	return p
}

func (p *process) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		p.mu.Lock()
		p.streams++
		p.mu.Unlock()
	}
}

func (p *process) opened() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.streams
}

// A controller that goes silent, or dies, is left for another one, and Envoy
// keeps all clusters meanwhile.
func TestEnvoyLeavesADeadController(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]syscall.Signal{"silent": syscall.SIGSTOP, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port := envoytest.FreePorts(t, 1)[0]
			at := func(ip string) string { return net.JoinHostPort(ip, strconv.Itoa(int(port))) }
			dead, alive := startReplica(t, at("127.0.0.2")), startReplica(t, at("127.0.0.3"))
			e := startWith(t, testConfig(t, dead.addr), dead.addr, alive.addr)
			if alive.opened() > 0 {
				dead, alive = alive, dead
			}
			begun, before := time.Now(), alive.opened()
			must(t, dead.cmd.Process.Signal(how))
			envoytest.Eventually(t, "the other has the stream", func() bool {
				wantPods(t, e)
				return alive.opened() > before
			})
			t.Logf("the stream was back within %v", time.Since(begun))
			wantPods(t, e)
		})
	}
}

// startWith runs Envoy with controllers at these addresses: what a name would
// resolve to.
func startWith(t *testing.T, c envoy.Config, addrs ...string) *envoytest.Envoy {
	t.Helper()
	b := build(t, c)
	for _, cluster := range b.GetStaticResources().GetClusters() {
		if cluster.GetName() != envoy.ControllerCluster {
			continue
		}
		cluster.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		cluster.LoadAssignment.Endpoints = nil
		for _, l := range endpoints(t, envoy.ControllerCluster, addrs...).GetEndpoints() {
			cluster.LoadAssignment.Endpoints = append(cluster.LoadAssignment.Endpoints, &endpointv3.LocalityLbEndpoints{LbEndpoints: l.GetLbEndpoints()})
		}
	}
	return envoytest.Start(t, b)
}

func wantPods(t *testing.T, e *envoytest.Envoy) {
	t.Helper()
	_, text, err := e.Admin(t.Context(), http.MethodGet, "/clusters")
	if err != nil || !strings.Contains(text, xds.ShardClusterOf(xds.HTTP1, "uid-1", 2)+"::192.0.2.1:80::") {
		t.Errorf("Envoy does not know the pod any more: %v", err)
	}
}
