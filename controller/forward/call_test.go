package forward

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	skipperpb "skipper/proto"
)

// sibling answers the replicas' own service.
type sibling struct {
	skipperpb.UnimplementedReplicaServiceServer
	entered chan struct{}
	hold    chan struct{} // shares are answered when it is closed
}

func (s *sibling) ShareLoad(ctx context.Context, r *skipperpb.ShareLoadRequest) (*skipperpb.ShareLoadResponse, error) {
	s.entered <- struct{}{}
	select {
	case <-s.hold:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if r.GetSenderIp() == "" {
		return nil, status.Error(codes.InvalidArgument, "who are you?")
	}
	return &skipperpb.ShareLoadResponse{}, nil
}

// startSibling has a peer at 10.0.0.2 that is a sibling.
func startSibling(t *testing.T) (*Peers, *sibling) {
	t.Helper()
	s := &sibling{entered: make(chan struct{}, 10), hold: make(chan struct{})}
	l, g := bufconn.Listen(1<<16), grpc.NewServer()
	skipperpb.RegisterReplicaServiceServer(g, s)
	healthpb.RegisterHealthServer(g, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	p := NewPeers(PeersConfig{
		Self: "10.0.0.1", Port: port, Metrics: NewMetrics(prometheus.NewRegistry()), Log: zap.NewNop(),
		Dial: []grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		},
	})
	t.Cleanup(func() {
		p.Close()
		g.Stop()
		<-served
	})
	p.Set("10.0.0.1", "10.0.0.2")
	return p, s
}

// share calls the peer; empty is the sender's name that it refuses.
func share(ctx context.Context, p *Peers, ip, sender string) error {
	return p.Call(ctx, ip, func(ctx context.Context, c skipperpb.ReplicaServiceClient) error {
		_, err := c.ShareLoad(ctx, &skipperpb.ShareLoadRequest{SenderIp: sender}, grpc.WaitForReady(true))
		return err
	})
}

func TestMembersAreTheOthers(t *testing.T) {
	w := newWorld(t, 3)
	p := w.replicas[w.ips[1]].peers
	if diff := cmp.Diff([]string{"10.0.0.1", "10.0.0.3"}, p.Members()); diff != "" {
		t.Error(diff)
	}
	p.Set("10.0.0.2", "10.0.0.9")
	if diff := cmp.Diff([]string{"10.0.0.9"}, p.Members()); diff != "" {
		t.Error(diff)
	}
	p.Close()
	if got := p.Members(); len(got) != 0 {
		t.Errorf("members after Close: %v", got)
	}
}

func TestCallReachesAMemberAndReturnsItsAnswer(t *testing.T) {
	p, s := startSibling(t)
	close(s.hold)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := share(ctx, p, "10.0.0.2", "10.0.0.1"); err != nil {
		t.Error(err)
	}
	if err := share(ctx, p, "10.0.0.2", ""); status.Code(err) != codes.InvalidArgument {
		t.Errorf("Call = %v", err)
	}
	for _, ip := range []string{"10.0.0.1", "10.0.0.3"} { // ourselves, and nobody
		if err := share(ctx, p, ip, "10.0.0.1"); !errors.Is(err, errGone) {
			t.Errorf("Call to %s = %v", ip, err)
		}
	}
}

// A member that leaves may still answer; Close cuts what it was asked.
func TestCloseEndsCalls(t *testing.T) {
	p, s := startSibling(t)
	var calls sync.WaitGroup
	ended := make(chan error, 1)
	calls.Go(func() { ended <- share(t.Context(), p, "10.0.0.2", "10.0.0.1") })
	<-s.entered
	p.Set("10.0.0.1")
	if len(ended) > 0 {
		t.Errorf("the call ended when the member left: %v", <-ended)
	}
	p.Close()
	calls.Wait()
	if err := <-ended; !errors.Is(err, errGone) {
		t.Errorf("Call = %v", err)
	}
}

func TestCallEndsWithItsContext(t *testing.T) {
	p, s := startSibling(t)
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	ended := make(chan error, 1)
	calls.Go(func() { ended <- share(ctx, p, "10.0.0.2", "10.0.0.1") })
	<-s.entered
	cancel()
	calls.Wait()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Errorf("Call = %v", err)
	}
}
