package client_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/anypb"

	skipperpb "skipper/proto"
	"skipper/xds"
	"skipper/xds/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// controller hands each stream to the test, which plays the controller.
type controller struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	sessions chan *session
}

type session struct {
	t      *testing.T
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	ended  chan error
}

func (c *controller) DeltaAggregatedResources(g discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	s := &session{stream: g, ended: make(chan error, 1)}
	select {
	case c.sessions <- s:
	case <-g.Context().Done():
		return nil
	}
	select {
	case err := <-s.ended:
		return err
	case <-g.Context().Done():
		return nil
	}
}

// events are the callbacks, in order.
type events struct {
	updates chan *skipperpb.FunctionInstances
	removes chan string
}

// run starts a controller played by the test and a client, until the test ends.
func run(t *testing.T) (*controller, *client.Client, events) {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	g := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
	c := &controller{sessions: make(chan *session)}
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, c)
	conn, err := grpc.NewClient("passthrough:///controller", append(client.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	e := events{make(chan *skipperpb.FunctionInstances, 100), make(chan string, 100)}
	cl := client.New(client.Options{
		Conn: conn, Node: &corev3.Node{Id: "extproc-1"}, Logger: zaptest.NewLogger(t),
		OnUpdate: func(m *skipperpb.FunctionInstances) { e.updates <- m },
		OnRemove: func(name string) { e.removes <- name },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = g.Serve(l) })
	running.Go(func() { _ = cl.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		_ = conn.Close()
		g.Stop()
		running.Wait()
	})
	return c, cl, e
}

// accept takes the next stream without sending headers.
func (c *controller) accept(t *testing.T) *session {
	t.Helper()
	s := <-c.sessions
	s.t = t
	return s
}

// open takes the next stream as a controller that knows the world.
func (c *controller) open(t *testing.T) *session {
	t.Helper()
	s := c.accept(t)
	s.open()
	return s
}

func (s *session) open() {
	s.t.Helper()
	if err := s.stream.SendHeader(metadata.MD{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) request() *discoveryv3.DeltaDiscoveryRequest {
	s.t.Helper()
	r, err := s.stream.Recv()
	if err != nil {
		s.t.Fatalf("receive: %v", err)
	}
	return r
}

func (s *session) send(nonce string, removed []string, resources ...*discoveryv3.Resource) {
	s.t.Helper()
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: xds.InstancesTypeURL, Nonce: nonce, Resources: resources, RemovedResources: removed}
	if err := s.stream.Send(r); err != nil {
		s.t.Fatalf("send: %v", err)
	}
}

func resourceOf(t *testing.T, name, version string) *discoveryv3.Resource {
	t.Helper()
	a, err := anypb.New(&skipperpb.FunctionInstances{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return &discoveryv3.Resource{Name: name, Version: version, Resource: a}
}
