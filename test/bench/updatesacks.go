package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
)

// acks watches the delta streams of a gRPC server for responses about endpoints
// and what their receivers say of them. It looks from outside, so any xDS server
// is measured by the same clock.
type acks struct {
	mu sync.Mutex
	// The fields below are guarded by mu.
	nodes  map[string]bool // that have acknowledged endpoints
	wanted *wantedAck      // nil: nobody waits
}

// wantedAck is one update on its way.
type wantedAck struct {
	cluster string
	since   time.Time
	nodes   int
	got     map[string]time.Time // by node
	err     error
	done    chan struct{} // closed when got is full or err is set
}

func newAcks() *acks { return &acks{nodes: map[string]bool{}} }

// intercept is a grpc.StreamServerInterceptor.
func (a *acks) intercept(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return next(srv, &ackStream{ServerStream: s, acks: a, sent: map[string]sentEndpoints{}})
}

// want begins an update of a cluster's endpoints that so many nodes are to
// acknowledge. There is one at a time.
func (a *acks) want(cluster string, nodes int) *wantedAck {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wanted = &wantedAck{cluster: cluster, since: time.Now(), nodes: nodes, got: map[string]time.Time{}, done: make(chan struct{})}
	return a.wanted
}

// wait returns how long the node's acknowledgement took, once all have come.
func (w *wantedAck) wait(ctx context.Context, node string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, updatePatience)
	defer cancel()
	select {
	case <-w.done:
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for %d acknowledgements of %s: %w", w.nodes, w.cluster, ctx.Err())
	}
	if w.err != nil {
		return 0, w.err
	}
	at, ok := w.got[node]
	if !ok {
		return 0, fmt.Errorf("%s was acknowledged, but not by %s", w.cluster, node)
	}
	return at.Sub(w.since), nil
}

// known is how many nodes have acknowledged endpoints so far.
func (a *acks) known() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.nodes)
}

// answered takes a node's word on a response.
func (a *acks) answered(node string, s sentEndpoints, refusal string) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nodes[node] = true
	w := a.wanted
	if w == nil || w.err != nil || len(w.got) == w.nodes || !s.clusters[w.cluster] || s.at.Before(w.since) {
		return
	}
	w.got[node] = now
	if refusal != "" {
		w.err = errors.New(node + " refuses endpoints: " + refusal)
	}
	if w.err != nil || len(w.got) == w.nodes {
		close(w.done)
	}
}

// sentEndpoints is one response.
type sentEndpoints struct {
	at       time.Time
	clusters map[string]bool
}

// ackStream is one stream. Reading and sending are one goroutine's each.
type ackStream struct {
	grpc.ServerStream
	acks *acks
	node string // set by the first request, used by the reader only

	mu   sync.Mutex
	sent map[string]sentEndpoints // by nonce; guarded by mu
}

// SendMsg implements grpc.ServerStream.
func (s *ackStream) SendMsg(m any) error {
	if r, ok := m.(*discoveryv3.DeltaDiscoveryResponse); ok && r.GetTypeUrl() == resourcev3.EndpointType {
		e := sentEndpoints{at: time.Now(), clusters: map[string]bool{}}
		for _, c := range r.GetResources() {
			e.clusters[c.GetName()] = true
		}
		s.mu.Lock()
		s.sent[r.GetNonce()] = e
		s.mu.Unlock()
	}
	return s.ServerStream.SendMsg(m)
}

// RecvMsg implements grpc.ServerStream.
func (s *ackStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	r, ok := m.(*discoveryv3.DeltaDiscoveryRequest)
	if !ok {
		return nil
	}
	if id := r.GetNode().GetId(); id != "" {
		s.node = id
	}
	s.mu.Lock()
	e, known := s.sent[r.GetResponseNonce()]
	delete(s.sent, r.GetResponseNonce())
	s.mu.Unlock()
	if known {
		s.acks.answered(s.node, e, r.GetErrorDetail().GetMessage())
	}
	return nil
}
