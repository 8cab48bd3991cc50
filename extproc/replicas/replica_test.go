package replicas_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	skipperpb "skipper/proto"
	"skipper/xds/server"
)

// replicaVariable makes the test program a controller at that address instead.
const replicaVariable = "SKIPPER_TEST_REPLICA"

func TestMain(m *testing.M) {
	if os.Getenv(burnVariable) != "" {
		burn()
	}
	if addr := os.Getenv(replicaVariable); addr != "" {
		if err := serveReplica(addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// replica answers every question with its own address.
type replica struct {
	skipperpb.UnimplementedControllerServiceServer
	addr string
}

func (r replica) GetInstance(context.Context, *skipperpb.GetInstanceRequest) (*skipperpb.GetInstanceResponse, error) {
	return &skipperpb.GetInstanceResponse{Instance: &skipperpb.Instance{Addr: r.addr}}, nil
}

func (r replica) Instances(name string) (*skipperpb.FunctionInstances, bool) {
	return &skipperpb.FunctionInstances{Name: name, Version: 1, Instances: []*skipperpb.Instance{{Addr: r.addr}}}, true
}

// serveReplica serves the real xDS server and a stub of the service until the
// process is killed.
func serveReplica(addr string) error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	r := replica{addr: addr}
	x := server.New(server.Options{Source: r})
	x.Open()
	g := grpc.NewServer(server.ServerOptions()...)
	x.Register(g)
	skipperpb.RegisterControllerServiceServer(g, r)
	return g.Serve(l)
}

// process is a replica in a process of its own.
type process struct {
	addr netip.Addr
	cmd  *exec.Cmd
}

// startReplica runs a replica and waits until it listens.
func startReplica(t *testing.T, ip string, port uint16) *process {
	t.Helper()
	addr := net.JoinHostPort(ip, strconv.Itoa(int(port)))
	// The process outlives the test's context, which ends before clean-up.
	p := &process{addr: netip.MustParseAddr(ip), cmd: exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])}
	p.cmd.Env = append(os.Environ(), replicaVariable+"="+addr)
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may be dead already
		_ = p.cmd.Wait()         // says that it was killed
	})
	eventually(t, addr+" listens", func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
	return p
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// freePort is free on all addresses of the loopback that tests use.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

// names is a DNS of one name.
type names struct {
	mu    sync.Mutex
	addrs []netip.Addr
	err   error
}

func (n *names) set(err error, addrs ...netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addrs, n.err = addrs, err
}

func (n *names) lookup(context.Context, string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]netip.Addr(nil), n.addrs...), n.err
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited in vain until: %s", what)
		}
	}
}
