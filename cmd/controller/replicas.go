package main

import (
	"context"
	"net"
	"slices"
	"sync"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"skipper/controller/claim"
	"skipper/controller/forward"
	"skipper/controller/lookup"
	"skipper/controller/pool"
	"skipper/controller/ring"
	"skipper/controller/watch"
)

// membership is what this replica knows of all replicas, itself among them.
type membership struct {
	mu sync.Mutex
	// The fields below are guarded by mu.
	serving bool // from the first published world until the stop
	seen    []ring.Replica
	joined  []string
}

// buildRing makes the ring and what reaches its other members, who all listen
// on the same port.
func (p *process) buildRing(l listeners) {
	p.ring = ring.NewMembers(p.HashRingWaitTime)
	metrics := forward.NewMetrics(p.registry)
	log := p.logger.Named("forward")
	p.peers = forward.NewPeers(forward.PeersConfig{
		Self: p.PodIP, Port: portOf(l.grpc), Metrics: metrics, Log: log,
		Dial: append(p.tracedClient(), grpc.WithTransportCredentials(p.peerCredentials())),
	})
	p.forwarder = forward.New(forward.Config{
		Self: p.PodIP, Ring: p.ring, Peers: p.peers, Serving: p.isServing, Metrics: metrics, Log: log,
	})
}

func portOf(l net.Listener) uint16 {
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0
	}
	return uint16(addr.Port)
}

// sawReplicas is told of all replicas at each change of one.
func (p *process) sawReplicas(members []watch.Member) {
	seen := make([]ring.Replica, len(members))
	for i, m := range members {
		seen[i] = ring.Replica{IP: m.IP, Ready: m.Ready, Terminating: m.Terminating}
	}
	p.members.mu.Lock()
	defer p.members.mu.Unlock()
	p.members.seen = seen
	p.rejoinLocked()
}

// setServing says whether this replica executes calls.
func (p *process) setServing(serving bool) {
	p.members.mu.Lock()
	defer p.members.mu.Unlock()
	p.members.serving = serving
	p.rejoinLocked()
}

func (p *process) isServing() bool {
	p.members.mu.Lock()
	defer p.members.mu.Unlock()
	return p.members.serving
}

// rejoinLocked puts on the ring who belongs there. Peers know new members
// before anybody can find them on the ring.
func (p *process) rejoinLocked() {
	m := &p.members
	joined := ring.Joined(p.PodIP, m.serving, m.seen)
	if slices.Equal(joined, m.joined) {
		return
	}
	p.peers.Set(append(slices.Clone(joined), m.joined...)...)
	p.ring.Set(joined...)
	p.peers.Set(joined...)
	p.logger.Info("ring", zap.Strings("members", joined), zap.Strings("before", m.joined), zap.Bool("serving", m.serving))
	m.joined = joined
}

// spread keeps replicas from meeting at the same pods.
func (p *process) spread() claim.Spread {
	return claim.Spread{Self: p.PodIP, Replicas: p.ring.Current().Members()}
}

// live reads one pod past the informers. Listing by name asks for no right that
// the informers do not need, and for one name costs no more than a get.
func (p *process) live(pods corev1client.PodsGetter) func(context.Context, string, string) (pool.Pod, bool, error) {
	return func(ctx context.Context, namespace, name string) (pool.Pod, bool, error) {
		found, err := lookup.Pod(ctx, pods, namespace, name)
		if found == nil {
			return pool.Pod{}, false, err
		}
		read := pool.FromPod(found, p.functions)
		p.view.ExpectWritten(read)
		return read, true, nil
	}
}
