package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skipper/controller/forward"
	"skipper/controller/lease"
	"skipper/controller/pool"
	"skipper/controller/retire"
	"skipper/controller/withdraw"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
)

// buildProgress makes what follows pods that have left routing until everybody
// knows, and the fence that rests on it.
func (p *process) buildProgress(c clients) {
	p.tracker = withdraw.New(withdraw.Config{
		Self: p.PodIP, Staleness: p.TableStaleness, View: p.view, Subscribers: p.xds, Peers: p.peers, FreshAt: p.watch.FreshAt,
		Republish: func(key fn.Key) { p.publisher.Republish(key) }, Freed: p.freed,
		Registerer: p.registry, Log: p.logger,
	})
	p.xds.Observe(p.tracker.Observer())
	p.leases = lease.New(lease.Config{
		Leases: c.background.CoordinationV1(), Namespace: p.Namespace, Staleness: p.TableStaleness,
		Subscribers: p.xds.Subscribers, GatewayOf: p.tracker.GatewayOf, FreshAt: p.watch.FreshAt, Registerer: p.registry, Log: p.logger,
	})
}

// freed is told of pods whose address may be used from now on.
func (p *process) freed(uids []string) {
	p.publisher.Reconsider(uids...)
	p.claimer.Reconsider()
}

// allowed is the fence before claims.
func (p *process) allowed(pod *pool.Pod) (ok bool, reason string) { return p.tracker.Allowed(pod) }

// followProgress runs all of it.
func (p *process) followProgress(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.tracker.Run(ctx) })
	g.Go(func() error { return p.leases.Run(ctx) })
	g.Go(func() error { return p.recall(ctx) })
	g.Go(func() error { return p.guardXDS(ctx) })
	return g.Wait()
}

// anyExtproc stands for all of an earlier time where they cannot be known.
const anyExtproc = "extprocs of an earlier time"

// recall reads which extprocs there were before this controller. Where it may
// not, any may have been there until now.
func (p *process) recall(ctx context.Context) error {
	var known []lease.State
	policy := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	err := backoff.Retry(func() (err error) {
		known, err = p.leases.Read(ctx)
		if apierrors.IsForbidden(err) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(policy, ctx))
	if ctx.Err() != nil {
		return nil //nolint:nilerr // a stop, whatever it cut off
	}
	if err != nil {
		p.logger.Error("extprocs of an earlier time are unknown: pods that start now wait until all their tables have expired; let the controller list leases in its namespace",
			zap.Duration("for", p.TableStaleness), zap.Error(err))
		known = []lease.State{{Node: anyExtproc, InStep: time.Now(), Connected: time.Now()}}
	}
	past := make([]withdraw.Past, len(known))
	for i, k := range known {
		past[i] = withdraw.Past{Node: k.Node, InStep: k.InStep, InTouch: k.Connected.Add(p.leases.Slack()), LastSeen: k.Connected, Envoy: k.Envoy, IP: k.IP}
	}
	p.tracker.Recall(past)
	return nil
}

// drained tells how far the drain of a pod is.
func (p *process) drained(pod pool.Pod) retire.Progress {
	return retire.Witnesses{Acknowledged: p.tracker.Acknowledged, InFlightSince: p.loads.InFlightSince}.Progress(pod)
}

// farewells has it heard, on the way of heartbeats to the other replicas, which
// extprocs have ended: by their own word, or by that of their successors.
type farewells struct {
	*forward.Forwarder
	heard  func(routerID, envoyNode string)
	serves func(r *skipperpb.HeartbeatRequest)
}

// Heartbeat tells the other replicas.
func (f farewells) Heartbeat(r *skipperpb.HeartbeatRequest) {
	switch {
	case r.GetRouterId() == "":
	case r.GetGoodbye():
		f.heard(r.GetRouterId(), r.GetEnvoyNodeId())
	default:
		f.serves(r)
	}
	f.Forwarder.Heartbeat(r)
}

func (p *process) saidGoodbye(routerID, envoyNode string) {
	p.loads.Goodbye(envoyNode, time.Now())
	p.tracker.Goodbye(routerID)
	p.leases.Goodbye(xds.ExtprocNode(routerID))
}

func (p *process) serves(r *skipperpb.HeartbeatRequest) {
	if p.beats.Departed(r.GetRouterId()) {
		return
	}
	p.loads.Served(r.GetEnvoyNodeId())
	for _, node := range p.tracker.Serves(r) {
		p.leases.Goodbye(node)
	}
}

// ShareProgress takes in how far another replica is, and says how far this one is.
func (s replicaService) ShareProgress(ctx context.Context, r *skipperpb.ShareProgressRequest) (*skipperpb.ShareProgressResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.progress.Hear(r), nil
}

// sight is how well this replica sees the cluster.
type sight struct {
	frozen bool          // the watch stands still although the API server does not
	age    time.Duration // since the view was known to be up to date
	// others are the other members, heard those that spoke lately, and fresh
	// those of them whose view is up to date.
	others, heard, fresh int
}

// blindAfter is the age of a view at which it is too old if others see better.
// Where nothing happens, bookmarks alone prove a view's age, each minute: it is
// up to three minutes then.
const blindAfter = xds.LeastStaleness

// blind says why this replica must not serve xDS; empty where it may. A replica
// that is cut off from the API server cannot tell that from an API server that
// is down, while which nothing changes, but for the others.
func blind(s sight, staleness time.Duration) (why string) {
	switch {
	case s.frozen:
		return "its watch is frozen"
	case s.age > blindAfter && s.fresh > 0:
		return "it is cut off from the API server, which other replicas reach"
	case s.age > max(staleness, blindAfter) && s.heard < s.others:
		return "it is cut off from the API server and from other replicas"
	}
	return ""
}

// sightEvery is how often the view is judged.
const sightEvery = time.Second

// xdsGate holds and opens the xDS server, until it is shut for good.
type xdsGate struct {
	mu   sync.Mutex
	held string // why; guarded by mu
	shut bool   // guarded by mu
}

var errShut = errors.New("xDS is shut")

// set holds the server for a reason, or opens it for none.
func (g *xdsGate) set(why string, hold func(string), open func()) (changed bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false, errShut
	}
	if (g.held == "") == (why == "") {
		return false, nil
	}
	if g.held = why; why != "" {
		hold(why)
	} else {
		open()
	}
	return true, nil
}

// close makes set do nothing any more.
func (g *xdsGate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
}

// blinded says that xDS is held.
func (g *xdsGate) blinded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held != ""
}

// guardXDS closes the xDS streams while this replica does not see enough, so
// that their tables' time begins to run out.
func (p *process) guardXDS(ctx context.Context) error {
	tick := time.NewTicker(sightEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if p.ready.is.Load() {
				p.judgeSight(now)
			}
		}
	}
}

func (p *process) judgeSight(now time.Time) {
	fresh := p.watch.FreshAt()
	if fresh.IsZero() {
		return // it has only just begun
	}
	s := sight{frozen: p.watch.Frozen(), age: now.Sub(fresh), others: len(p.peers.Members())}
	s.heard, s.fresh = p.tracker.PeersFresh()
	why := blind(s, p.TableStaleness)
	changed, err := p.gate.set(why, p.holdStreams, p.openStreams)
	if err != nil || !changed {
		return
	}
	p.logger.Warn("xDS", zap.Bool("held", why != ""), zap.String("because", why), zap.Duration("age_of_view", s.age),
		zap.Int("other_replicas", s.others), zap.Int("heard", s.heard), zap.Int("fresh", s.fresh))
}
