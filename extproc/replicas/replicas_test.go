package replicas_test

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	skipperpb "skipper/proto"

	"skipper/extproc/controller"
	"skipper/extproc/replicas"
	"skipper/xds/client"
)

// cluster is two replicas, and a connection to them as extproc has it.
type cluster struct {
	all    []*process
	dns    *names
	closed *observer.ObservedLogs // a line for each connection closed for its silence
	conn   *grpc.ClientConn
	api    skipperpb.ControllerServiceClient
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	port := freePort(t)
	c := &cluster{dns: &names{}}
	for _, ip := range []string{"127.0.0.2", "127.0.0.3"} {
		c.all = append(c.all, startReplica(t, ip, port))
	}
	c.dns.set(nil, c.all[0].addr, c.all[1].addr)
	core, lines := observer.New(zap.WarnLevel)
	c.closed = lines
	creds := replicas.Watch(insecure.NewCredentials(), replicas.WatchOptions{Log: zap.New(core)})
	conn, err := controller.Dial(replicas.Target("controllers", strconv.Itoa(int(port))), creds,
		replicas.DialOptions(replicas.Options{Every: 10 * time.Millisecond, Lookup: c.dns.lookup})...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	c.conn, c.api = conn, skipperpb.NewControllerServiceClient(conn)
	c.answeredBy(t, "both", c.all[0].addr, c.all[1].addr)
	return c
}

// ask returns which replica answers; the caller's deadline is that of a cold request.
func (c *cluster) ask(ctx context.Context) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := c.api.GetInstance(ctx, &skipperpb.GetInstanceRequest{})
	if err != nil {
		return netip.Addr{}, err
	}
	return netip.MustParseAddrPort(r.GetInstance().GetAddr()).Addr(), nil
}

// answeredBy waits until exactly these replicas answer 20 calls in a row.
func (c *cluster) answeredBy(t *testing.T, what string, want ...netip.Addr) {
	t.Helper()
	eventually(t, what+" answer", func() bool {
		seen := map[netip.Addr]bool{}
		for range 20 {
			addr, err := c.ask(t.Context())
			if err != nil {
				return false
			}
			seen[addr] = true
		}
		ok := len(seen) == len(want)
		for _, w := range want {
			ok = ok && seen[w]
		}
		return ok
	})
}

// subscriber runs extproc's xDS client, and knows who answers it.
type subscriber struct {
	*client.Client
	mu   sync.Mutex
	from map[string]netip.Addr
}

func (c *cluster) subscribe(t *testing.T) *subscriber {
	t.Helper()
	s := &subscriber{from: map[string]netip.Addr{}}
	s.Client = client.New(client.Options{Conn: c.conn, Node: &corev3.Node{Id: "extproc"}, Logger: zaptest.NewLogger(t), OnUpdate: s.update})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return s
}

func (s *subscriber) update(m *skipperpb.FunctionInstances) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from[m.GetName()] = netip.MustParseAddrPort(m.GetInstances()[0].GetAddr()).Addr()
}

// heard waits for the answer to a new subscription.
func (s *subscriber) heard(t *testing.T, name string) (from netip.Addr) {
	t.Helper()
	s.Subscribe(name)
	eventually(t, "list of "+name, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		from = s.from[name]
		return from.IsValid()
	})
	return from
}

// split tells the replica at addr from the other one.
func (c *cluster) split(addr netip.Addr) (at, other *process) {
	if c.all[0].addr == addr {
		return c.all[0], c.all[1]
	}
	return c.all[1], c.all[0]
}

// A replica that goes silent, and one that is killed, lose no call; the stream
// goes to the other one.
func TestDeadReplicaIsLeft(t *testing.T) {
	for _, row := range []struct {
		name string
		how  syscall.Signal
	}{{"silent", syscall.SIGSTOP}, {"killed", syscall.SIGKILL}} {
		t.Run(row.name, func(t *testing.T) {
			c := startCluster(t)
			s := c.subscribe(t)
			dead, alive := c.split(s.heard(t, "a/b/first"))
			begun := time.Now()
			dead.signal(t, row.how)
			var calls sync.WaitGroup
			for range 50 {
				calls.Go(func() {
					if _, err := c.ask(t.Context()); err != nil {
						t.Errorf("call: %v", err)
					}
				})
			}
			calls.Wait()
			t.Logf("50 calls were answered within %v", time.Since(begun))
			if from := s.heard(t, "a/b/second"); from != alive.addr {
				t.Errorf("stream is at %v, want %v", from, alive.addr)
			}
			t.Logf("the stream was back within %v", time.Since(begun))
			c.answeredBy(t, "the other", alive.addr)
			if n := c.closed.Len(); n > 0 != (row.how == syscall.SIGSTOP) {
				t.Errorf("%d connections were closed for their silence", n)
			}
			if row.how == syscall.SIGSTOP {
				dead.signal(t, syscall.SIGCONT)
				c.answeredBy(t, "both again", dead.addr, alive.addr)
			}
		})
	}
}

func TestNamesAreFollowed(t *testing.T) {
	c := startCluster(t)
	one, two := c.all[0].addr, c.all[1].addr
	c.dns.set(nil, two)
	c.answeredBy(t, "only the second", two)
	c.dns.set(errors.New("DNS is down"))
	c.answeredBy(t, "still the second", two)
	c.dns.set(nil)
	c.answeredBy(t, "still the second", two)
	c.dns.set(nil, netip.AddrFrom16(one.As16()), one, two)
	c.answeredBy(t, "both", one, two)
}
