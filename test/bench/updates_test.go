package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"

	"skipper/xds/server"
)

// updateServer is a world of endpoints that clients can reach.
func updateServer(t *testing.T, shards int) (*updateWorld, string) {
	t.Helper()
	w := &updateWorld{xds: server.New(server.Options{Shards: shards}), acks: newAcks(), shards: shards, size: 100}
	w.fill()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(append(server.ServerOptions(), grpc.StreamInterceptor(w.acks.intercept))...)
	w.xds.Register(g)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		w.xds.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return w, l.Addr().String()
}

// Each step waits for every client, and is timed by the one that is measured.
func TestUpdatesAreAcknowledgedByAll(t *testing.T) {
	for _, shards := range []int{1, 8} {
		w, addr := updateServer(t, shards)
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for _, node := range []string{updateNode, "other"} {
			go func() { ended <- playEnvoy(ctx, addr, node) }()
		}
		row, err := w.update(t.Context(), 20, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(row.Added) != 20 || row.Total != 40 {
			t.Errorf("%d shards: %d of 20 endpoints came, in %d of 40 steps", shards, len(row.Added), row.Total)
		}
		if n := w.acks.known(); n != 2 {
			t.Errorf("%d shards: %d clients are known, want 2", shards, n)
		}
		leave()
		for range 2 {
			if err := <-ended; err == nil {
				t.Error("a client ended before it was told to")
			}
		}
	}
}

// scripted is a stream on which a client says what the test wants.
type scripted struct {
	grpc.ServerStream
	next *discoveryv3.DeltaDiscoveryRequest
}

func (*scripted) SendMsg(any) error { return nil }

func (s *scripted) RecvMsg(m any) error {
	r, ok := m.(*discoveryv3.DeltaDiscoveryRequest)
	if !ok {
		return errors.New("that is no request")
	}
	r.Node, r.ResponseNonce, r.ErrorDetail = s.next.GetNode(), s.next.GetResponseNonce(), s.next.GetErrorDetail()
	return nil
}

func said(t *testing.T, s *ackStream, under *scripted, r *discoveryv3.DeltaDiscoveryRequest) {
	t.Helper()
	under.next = r
	if err := s.RecvMsg(&discoveryv3.DeltaDiscoveryRequest{}); err != nil {
		t.Fatal(err)
	}
}

func sent(t *testing.T, s *ackStream, nonce, cluster string) {
	t.Helper()
	if err := s.SendMsg(&discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: resourcev3.EndpointType, Nonce: nonce, Resources: []*discoveryv3.Resource{{Name: cluster}},
	}); err != nil {
		t.Fatal(err)
	}
}

func isDone(w *wantedAck) bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// Only the answer to a response that was sent since, and has the cluster, counts.
func TestAcksOfOtherResponsesDoNotCount(t *testing.T) {
	a, under := newAcks(), &scripted{}
	s := &ackStream{ServerStream: under, acks: a, sent: map[string]sentEndpoints{}, node: updateNode}
	sent(t, s, "1", "mine")
	w := a.want("mine", 1)
	w.since = time.Now().Add(time.Nanosecond)
	sent(t, s, "2", "other")
	for _, nonce := range []string{"1", "2", "3"} {
		said(t, s, under, &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: nonce})
	}
	if isDone(w) {
		t.Fatal("an update is acknowledged by answers to other responses")
	}
	sent(t, s, "4", "mine")
	if isDone(w) {
		t.Fatal("an update is acknowledged before the answer")
	}
	said(t, s, under, &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: "4"})
	if took, err := w.wait(t.Context(), updateNode); err != nil || took <= 0 {
		t.Errorf("wait = %v, %v", took, err)
	}
	if _, err := w.wait(t.Context(), "another"); err == nil {
		t.Error("a node that said nothing has a time")
	}
}

func TestRefusedEndpointsEndTheRow(t *testing.T) {
	a, under := newAcks(), &scripted{}
	s := &ackStream{ServerStream: under, acks: a, sent: map[string]sentEndpoints{}, node: updateNode}
	w := a.want("mine", 2)
	sent(t, s, "1", "mine")
	said(t, s, under, &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: "1", ErrorDetail: &status.Status{Message: "no such host"}})
	if _, err := w.wait(t.Context(), updateNode); err == nil || !strings.Contains(err.Error(), "no such host") {
		t.Errorf("wait = %v, want the client's word", err)
	}
}
