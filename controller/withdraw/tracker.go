package withdraw

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
	"skipper/xds/server"
)

// view is what is read of the cluster: *pool.View.
type view interface {
	Watermark(namespace string) uint64
	Pod(uid string) (pool.Pod, bool)
}

// subscribers are those of this replica: *server.Server.
type subscribers interface {
	Unacknowledged(typeURL, name string, generation uint64) []string
	Subscribers() []server.Subscriber
}

// peers are the other replicas: *forward.Peers.
type peers interface {
	Members() []string
	Call(ctx context.Context, ip string, do func(context.Context, skipperpb.ReplicaServiceClient) error) error
}

// Config of a Tracker. All fields are required unless marked optional.
type Config struct {
	// Self is this replica's IP on the ring.
	Self string
	// Staleness is how long an extproc uses its table without a controller
	// (--table-staleness).
	Staleness   time.Duration
	View        view
	Subscribers subscribers
	Peers       peers
	// FreshAt is a time up to which the view is known to show everything; zero:
	// none. Optional: nil is that.
	FreshAt func() time.Time
	// Republish has the list of a function published again, soon.
	Republish func(fn.Key)
	// Freed is told of pods that were refused and no longer are.
	Freed      func(uids []string)
	Registerer prometheus.Registerer
	Log        *zap.Logger
}

// Tracker follows withdrawals until everybody knows of them. Safe for
// concurrent use.
type Tracker struct {
	cfg     Config
	log     *zap.Logger
	metrics *metrics
	wake    chan struct{} // 1: something may have moved
	tell    chan struct{} // 1: other replicas may wait for something

	mu   sync.Mutex
	book *book // guarded by mu
}

// New returns a Tracker that follows what it is told; nothing is closed before
// Run, and no pod at an address of unknown history allowed before Recall.
func New(cfg Config) *Tracker {
	if cfg.FreshAt == nil {
		cfg.FreshAt = func() time.Time { return time.Time{} }
	}
	t := &Tracker{
		cfg: cfg, log: cfg.Log.Named("withdraw"),
		wake: make(chan struct{}, 1), tell: make(chan struct{}, 1),
		book: newBook(cfg.Staleness, time.Now()),
	}
	t.metrics = newMetrics(cfg.Registerer, t)
	return t
}

// remind leaves a token in a channel of size 1.
func remind(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Observe is told of each change of the view, in order, before the lists that
// show it are built.
func (t *Tracker) Observe(e pool.Event) {
	watermark := t.cfg.View.Watermark(e.Pod().Namespace)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.book.observe(e, watermark, time.Now())
	if t.book.changed {
		remind(t.wake)
	}
}

// Mark is taken before lists are built, for Published.
func (t *Tracker) Mark() uint64 {
	fresh := t.cfg.FreshAt()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.book.reach(t.cfg.View.Watermark, fresh)
	return t.book.seq
}

// Published is told that the lists of the functions, built after mark was
// taken, are served as of the generation.
func (t *Tracker) Published(mark, generation uint64, functions map[fn.Key]struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.book.published(mark, generation, functions)
	remind(t.wake)
}

// Observer is for the xDS server whose subscribers are followed.
func (t *Tracker) Observer() server.Observer {
	return server.Observer{
		Acknowledged: func() { remind(t.wake) },
		Left: func(d server.Departure) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.book.depart(d.Node, d.At, d.Acknowledged)
			remind(t.wake)
		},
	}
}

// Goodbye is told that the extproc with the router id uses its table no more.
func (t *Tracker) Goodbye(routerID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.book.goodbye(xds.ExtprocNode(routerID), time.Now())
	remind(t.wake)
}

// Serves is told of each heartbeat of an extproc: where it is, and which Envoy it
// serves. It returns the nodes of those whose place it has taken. Other extprocs
// that name the same Envoy stay what they are.
func (t *Tracker) Serves(r *skipperpb.HeartbeatRequest) (ended []string) {
	if r.GetRouterId() == "" || r.GetEnvoyNodeId() == "" {
		return nil
	}
	node, now := xds.ExtprocNode(r.GetRouterId()), time.Now()
	g := gateway{envoy: r.GetEnvoyNodeId(), ip: r.GetRouterIp()}
	if d := r.GetRunningFor(); d != nil { // a router that leaves it out may have been there all the time
		g.began = now.Add(-d.AsDuration())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	ended, twins := t.book.serve(node, g, now)
	for _, other := range twins {
		t.log.Warn("extproc is away, and another one that names the same Envoy is no successor: it counts as at work until its table has expired; give each Envoy a node id of its own",
			zap.String("node", other.node), zap.String("envoy", g.envoy), zap.String("named_by", node), zap.String("ip", g.ip), zap.String("reason", other.why))
	}
	if len(ended) > 0 {
		t.log.Info("extprocs ended: another one has taken their place", zap.Strings("nodes", ended), zap.String("envoy", g.envoy), zap.String("by", node))
		remind(t.wake)
	}
	return ended
}

// GatewayOf is the node id of the Envoy that an extproc serves, and the IP of the
// pod that both are in, by the extproc's node id; empty: unknown.
func (t *Tracker) GatewayOf(node string) (envoy, ip string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.book.gateways[node]
	return g.envoy, g.ip
}

// Past is an extproc that was there before this controller.
type Past struct {
	Node string
	// InTouch is when it was last connected to a controller, at the latest.
	InTouch time.Time
	// InStep is when it last had acknowledged everything, at the earliest.
	InStep time.Time
	// LastSeen is when it was last known to be connected to a controller.
	LastSeen time.Time
	// Envoy is the node id of the Envoy that it served, and IP that of the pod
	// that both are in; empty: unknown.
	Envoy, IP string
}

// Recall is told which extprocs there were before this controller began. It is
// called once, and must be.
func (t *Tracker) Recall(all []Past) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for _, p := range all {
		t.book.lose(p.Node, away{since: p.InTouch, inStep: p.InStep, noted: now, last: p.LastSeen}, nil, nil)
		if _, heard := t.book.gateways[p.Node]; !heard && p.Envoy != "" {
			t.book.gateways[p.Node] = gateway{envoy: p.Envoy, ip: p.IP}
		}
	}
	t.book.read = true
	remind(t.wake)
}

// Acknowledged says since when everybody who had the list of the pod's function
// is known to have heard that the pod left routing; false while somebody is not,
// and for pods that have not left.
func (t *Tracker) Acknowledged(uid string) (since time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.book.records[uid]
	if r == nil || r.heardAt.IsZero() {
		return time.Time{}, false
	}
	return r.heardAt, true
}

// Allowed says whether a free pod may be claimed, and shown to Envoy, at its
// address, and if not, why. It is quick and calls nobody.
func (t *Tracker) Allowed(p *pool.Pod) (ok bool, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.book.allowed(p, time.Now())
	if held := t.book.blocked[p.UID]; !d.Allowed && held != nil && !held.said {
		held.said = true
		t.metrics.refused.WithLabelValues(d.Cause).Inc()
		t.log.Info("address not to be used yet", zap.String("pod", p.Namespace+"/"+p.Name), zap.String("uid", p.UID),
			zap.String("addr", p.Addr()), zap.String("reason", d.Reason))
	}
	return d.Allowed, d.Reason
}

// Hear answers another replica.
func (t *Tracker) Hear(r *skipperpb.ShareProgressRequest) *skipperpb.ShareProgressResponse {
	t.mu.Lock()
	defer t.mu.Unlock()
	answer := t.book.hear(r, time.Now())
	remind(t.wake)
	return answer
}

// PeersFresh says whether any, and whether all other members said lately that
// their view is up to date.
func (t *Tracker) PeersFresh() (heard, fresh int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.book.peers {
		if time.Since(p.heardAt) < peerSilence {
			heard++
			if p.fresh {
				fresh++
			}
		}
	}
	return heard, fresh
}

// peerSilence is how long a member's word about its view counts.
const peerSilence = 10 * time.Second

// subscribersOf sorts the subscribers of instances by how far they are.
func subscribersOf(all []server.Subscriber) nodes {
	var n nodes
	for _, s := range all {
		switch {
		case s.Type != "instances":
		case s.CaughtUp:
			n.inStep = append(n.inStep, s.Node)
		default:
			n.behind = append(n.behind, s.Node)
		}
	}
	return n
}

const typeURL = xds.InstancesTypeURL
