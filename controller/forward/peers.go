package forward

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	skipperpb "skipper/proto"
)

// DefaultDeadAfter is how long a peer may be silent before it counts as dead. It
// is looked at four times in that time, so that the next owner is asked within
// the second.
const DefaultDeadAfter = 800 * time.Millisecond

// serviceConfig has the contract's retries; a peer is one address, so there is
// nothing to go round.
const serviceConfig = `{"methodConfig": ` + skipperpb.MethodConfig + `}`

// errGone is why calls to a peer end that has left.
var errGone = errors.New("peer has left")

// PeersConfig of Peers. All fields are required unless marked optional.
type PeersConfig struct {
	// Self is left out of the peers.
	Self string
	// Port that all replicas serve gRPC on.
	Port uint16
	// Dial holds the transport credentials and whatever else connections need.
	Dial []grpc.DialOption
	// DeadAfter: see DefaultDeadAfter. Optional: 0 means that.
	DeadAfter time.Duration
	Metrics   *Metrics
	Log       *zap.Logger
}

// Peers are the connections to the other members. Safe for concurrent use.
// Close must be called.
type Peers struct {
	cfg  PeersConfig
	life context.Context //nolint:containedctx // lifetime of the connections, ended by Close
	end  context.CancelFunc

	mu sync.Mutex
	// The fields below are guarded by mu.
	peers   map[string]*peer
	leaving map[*peer]struct{} // no members any more, but with calls to answer
	closed  bool

	running sync.WaitGroup // goroutines of peers
}

// NewPeers has no peers before Set.
func NewPeers(cfg PeersConfig) *Peers {
	if cfg.DeadAfter == 0 {
		cfg.DeadAfter = DefaultDeadAfter
	}
	life, end := context.WithCancel(context.Background())
	return &Peers{cfg: cfg, life: life, end: end, peers: map[string]*peer{}, leaving: map[*peer]struct{}{}}
}

// Set replaces the members and returns at once. New ones are being connected
// when it returns; those that have left are closed when the calls that they
// were sent have ended.
func (p *Peers) Set(ips ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	wanted := map[string]bool{}
	for _, ip := range ips {
		wanted[ip] = ip != p.cfg.Self
	}
	for ip, old := range p.peers {
		if !wanted[ip] {
			delete(p.peers, ip)
			p.retireLocked(old)
		}
	}
	for ip, other := range wanted {
		if other && p.peers[ip] == nil {
			p.addLocked(ip)
		}
	}
}

func (p *Peers) addLocked(ip string) {
	made, err := newPeer(ip, p.cfg)
	if err != nil { // a target that cannot be parsed
		p.cfg.Log.Error("peer left out", zap.String("ip", ip), zap.Error(err))
		return
	}
	p.peers[ip] = made
	ctx, end := context.WithCancel(p.life)
	made.gone, made.end = ctx.Done(), end
	for _, work := range []func(context.Context){made.stayConnected, made.watch, made.send} {
		p.running.Go(func() { work(ctx) })
	}
}

// retireLocked lets the peer answer what it was asked, then closes it.
func (p *Peers) retireLocked(old *peer) {
	p.leaving[old] = struct{}{}
	p.running.Go(func() {
		old.drain()
		old.close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.leaving, old)
	})
}

// of is the peer with that IP; nil if there is none.
func (p *Peers) of(ip string) *peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peers[ip]
}

// Members are the IPs of the other members, sorted.
func (p *Peers) Members() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.peers))
}

// Call makes one call of the replicas' own service to a member. Its error is
// the call's; an IP that is no member, or has left meanwhile, is an error too.
func (p *Peers) Call(ctx context.Context, ip string, do func(context.Context, skipperpb.ReplicaServiceClient) error) error {
	peer := p.of(ip)
	if peer == nil {
		return fmt.Errorf("call replica %s: %w", ip, errGone)
	}
	return peer.call(ctx, func(ctx context.Context, _ skipperpb.ControllerServiceClient) error {
		return do(ctx, skipperpb.NewReplicaServiceClient(peer.conn))
	})
}

// Down tells whether the member is known not to answer, or has no connection.
func (p *Peers) Down(ip string) bool {
	peer := p.of(ip)
	return peer == nil || peer.down()
}

// Flush returns when the heartbeats that wait for members have been sent, or ctx
// ends. What is put meanwhile is waited for too: call it when nobody does any
// more.
func (p *Peers) Flush(ctx context.Context) {
	p.mu.Lock()
	all := slices.Collect(maps.Values(p.peers))
	p.mu.Unlock()
	for _, peer := range all {
		select {
		case <-peer.outbox.emptied():
		case <-ctx.Done():
			return
		}
	}
}

// Close ends all calls and connections, and returns when everything has ended.
func (p *Peers) Close() {
	p.mu.Lock()
	p.closed = true
	for ip, old := range p.peers {
		delete(p.peers, ip)
		old.close()
	}
	for old := range p.leaving {
		old.close()
	}
	p.mu.Unlock()
	p.end()
	p.running.Wait()
}

func dial(ip string, cfg PeersConfig) (*grpc.ClientConn, error) {
	target := net.JoinHostPort(ip, strconv.Itoa(int(cfg.Port)))
	conn, err := grpc.NewClient("passthrough:///"+target, append([]grpc.DialOption{
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0), // stay warm
		// The timeout bounds how long sent bytes may stay unacknowledged; the
		// library pings no more often than each 10 s, hence the own watch.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: cfg.DeadAfter, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: cfg.DeadAfter,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(maxMessage), grpc.MaxCallRecvMsgSize(maxMessage)),
	}, cfg.Dial...)...)
	if err != nil {
		return nil, fmt.Errorf("prepare connection to controller %s: %w", target, err)
	}
	return conn, nil
}

// maxMessage is the largest message that a replica takes (package server).
const maxMessage = 8 << 20
