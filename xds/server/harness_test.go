package server_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	skipperpb "skipper/proto"
	"skipper/xds"
	"skipper/xds/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	clusters  = resourcev3.ClusterType
	endpoints = resourcev3.EndpointType
	instances = xds.InstancesTypeURL
	shards    = 4
)

// source is a server.Source that the test fills.
type source struct {
	mu    sync.Mutex
	lists map[string]*skipperpb.FunctionInstances
}

func (s *source) Instances(name string) (*skipperpb.FunctionInstances, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.lists[name]
	return m, ok
}

func (s *source) set(m *skipperpb.FunctionInstances) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists == nil {
		s.lists = map[string]*skipperpb.FunctionInstances{}
	}
	s.lists[m.GetName()] = m
}

// start serves s on a connection in memory until the end of the test.
func start(t *testing.T, s *server.Server) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	g := grpc.NewServer(server.ServerOptions()...)
	s.Register(g)
	var served sync.WaitGroup
	served.Go(func() { _ = g.Serve(l) })
	conn, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		g.Stop()
		s.Close()
		served.Wait()
	})
	return conn
}

// raw is a client that says exactly what the test wants.
type raw struct {
	t      *testing.T
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	node   string
}

func connect(t *testing.T, conn *grpc.ClientConn, node string) *raw {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	g, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &raw{t: t, stream: g, node: node}
}

func (c *raw) send(r *discoveryv3.DeltaDiscoveryRequest) {
	c.t.Helper()
	r.Node = &corev3.Node{Id: c.node}
	if err := c.stream.Send(r); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

func (c *raw) subscribe(typeURL string, names ...string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: names})
}

// read is the next response, not answered.
func (c *raw) read(typeURL string) *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	r, err := c.stream.Recv()
	if err != nil {
		c.t.Fatalf("receive: %v", err)
	}
	if r.GetTypeUrl() != typeURL {
		c.t.Fatalf("got a response of type %s, want %s", r.GetTypeUrl(), typeURL)
	}
	return r
}

func (c *raw) ack(r *discoveryv3.DeltaDiscoveryResponse) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
}

func (c *raw) nack(r *discoveryv3.DeltaDiscoveryResponse, words string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce(), ErrorDetail: &status.Status{Message: words}})
}

// next reads and acknowledges.
func (c *raw) next(typeURL string) *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	r := c.read(typeURL)
	c.ack(r)
	return r
}

// end is the error with which the server ends the stream.
func (c *raw) end() error {
	for {
		if _, err := c.stream.Recv(); err != nil {
			return err
		}
	}
}

func names(r *discoveryv3.DeltaDiscoveryResponse) []string {
	var out []string
	for _, e := range r.GetResources() {
		out = append(out, e.GetName())
	}
	return out
}

func pod(uid, addr string) server.Endpoint {
	return server.Endpoint{UID: uid, Addr: addr, Protocol: xds.HTTP1}
}

func list(name string, version uint64, uids ...string) *skipperpb.FunctionInstances {
	m := &skipperpb.FunctionInstances{Name: name, Version: version}
	for _, uid := range uids {
		m.Instances = append(m.Instances, &skipperpb.Instance{Uid: uid, Version: version})
	}
	return m
}

// read1 decodes the only resource of a response of instances.
func read1(t *testing.T, r *discoveryv3.DeltaDiscoveryResponse) *skipperpb.FunctionInstances {
	t.Helper()
	if len(r.GetResources()) != 1 {
		t.Fatalf("got %d resources, want 1: %v", len(r.GetResources()), names(r))
	}
	m := &skipperpb.FunctionInstances{}
	if err := r.GetResources()[0].GetResource().UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
	return m
}

// openInBubble is connect without a deadline: it would pass in virtual time.
func openInBubble(t *testing.T, conn *grpc.ClientConn) *raw {
	t.Helper()
	g, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &raw{t: t, stream: g, node: "bubble"}
}
