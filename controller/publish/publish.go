// Package publish tells Envoys and extprocs what the pool view shows: every pod
// that Envoy may know as an endpoint, claimed or not, and the routable
// instances of each function.
//
// One goroutine builds and hands over all changes, so lists of one function
// never overtake each other. Events that come while it works are taken together
// next time; the first event after a quiet moment is handed over at once.
package publish

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
	"skipper/xds/resource"
	"skipper/xds/server"
)

// pods is what is published: *pool.View.
type pods interface {
	Listen(f func(pool.Event)) (cancel func())
	All() []pool.Pod
	Pod(uid string) (pool.Pod, bool)
	Instances(key fn.Key) []pool.Pod
	Watermark(namespace string) uint64
	Known(namespace, deployment string) bool
}

// sink takes the changes: *server.Server.
type sink interface {
	Apply(c server.Change) (generation uint64)
	Open()
}

// gap is the least time between two changes: at 50,000 endpoints one costs each
// Envoy a few milliseconds, so a storm of events must not become one of
// changes. It delays no change that comes alone.
const gap = 2 * time.Millisecond

// Publisher publishes a view. Use New.
type Publisher struct {
	pods    pods
	sink    sink
	source  *Source
	logger  *zap.Logger
	changes prometheus.Counter

	wake chan struct{} // 1: a token says that pending may have something

	mu      sync.Mutex
	pending pending

	// published is what the sink has; it belongs to Run.
	published map[string]resource.Endpoint
}

// pending is what has changed since the last change was built.
type pending struct {
	pods      map[string]*pool.Pod // by UID; nil: removed
	functions map[fn.Key]struct{}
}

func newPending() pending {
	return pending{pods: map[string]*pool.Pod{}, functions: map[fn.Key]struct{}{}}
}

// New makes a publisher of v to s. Source must be the one that s was made with,
// or one of the same view.
func New(v pods, s sink, source *Source, logger *zap.Logger, r prometheus.Registerer) *Publisher {
	p := &Publisher{
		pods: v, sink: s, source: source, logger: logger,
		wake: make(chan struct{}, 1), pending: newPending(), published: map[string]resource.Endpoint{},
		changes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "skipper_controller_published_changes_total",
			Help: "Changes handed over to the xDS server.",
		}),
	}
	r.MustRegister(p.changes)
	return p
}

// Run publishes everything that the view knows, opens the sink, calls opened,
// and goes on with every change until ctx ends. It must be called once, after
// the informers have synced.
func (p *Publisher) Run(ctx context.Context, opened func()) error {
	cancel := p.pods.Listen(p.observe)
	defer cancel()
	if !p.awaitFirst(ctx) {
		return nil
	}
	p.flush()
	p.sink.Open()
	p.logger.Info("published the first world", zap.Int("endpoints", len(p.published)))
	opened()
	return p.loop(ctx)
}

// recheck is how often awaitFirst looks for pods that vanished meanwhile, of
// which there is no event.
const recheck = 10 * time.Millisecond

// awaitFirst waits until the listener has told of every pod that was known when
// it began; false if ctx ended first. Only the listener's word is taken: what
// All shows may be undone by an event that was merged away.
func (p *Publisher) awaitFirst(ctx context.Context) bool {
	missing := map[string]struct{}{}
	for _, pod := range p.pods.All() {
		missing[pod.UID] = struct{}{}
	}
	tick := time.NewTicker(recheck)
	defer tick.Stop()
	for !p.toldOf(missing) {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// toldOf strikes out those that were told of or are gone; true if none is left.
func (p *Publisher) toldOf(missing map[string]struct{}) bool {
	p.mu.Lock()
	for uid := range p.pending.pods {
		delete(missing, uid)
	}
	p.mu.Unlock()
	for uid := range missing {
		if _, there := p.pods.Pod(uid); !there {
			delete(missing, uid)
		}
	}
	return len(missing) == 0
}

func (p *Publisher) loop(ctx context.Context) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
		p.flush()
		pause.Reset(gap)
	}
}

// observe is the listener of the view.
func (p *Publisher) observe(e pool.Event) {
	p.mu.Lock()
	p.pending.pods[e.Pod().UID] = e.New
	for _, pod := range []*pool.Pod{e.Old, e.New} {
		if pod != nil && pod.Function != nil {
			p.pending.functions[pod.Key] = struct{}{}
		}
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Publisher) flush() {
	p.mu.Lock()
	todo := p.pending
	p.pending = newPending()
	p.mu.Unlock()
	c := p.change(todo)
	if len(c.Remove)+len(c.Upsert)+len(c.Instances) == 0 {
		return
	}
	p.changes.Inc()
	p.sink.Apply(c)
}

// change builds what the sink does not have yet, and notes it as published.
func (p *Publisher) change(todo pending) server.Change {
	var c server.Change
	for uid, pod := range todo.pods {
		was, known := p.published[uid]
		switch {
		case pod == nil || !pod.Publishable():
			if known {
				c.Remove = append(c.Remove, uid)
				delete(p.published, uid)
			}
		case !known || was != endpoint(*pod):
			p.published[uid] = endpoint(*pod)
			c.Upsert = append(c.Upsert, endpoint(*pod))
		}
	}
	for key := range todo.functions {
		c.Instances = append(c.Instances, p.source.list(key))
	}
	return c
}

func endpoint(p pool.Pod) resource.Endpoint {
	return resource.Endpoint{UID: p.UID, Addr: p.Addr(), Protocol: p.Protocol}
}

// Source answers what the instances of a function are now. It is stateless and
// safe for concurrent use; it implements server.Source.
type Source struct {
	Pods pods
	// Shards of each cluster family, a power of two, as the xDS server has it.
	Shards int
}

// Instances are those of the function of this resource name; false where no
// pod of its pool was ever seen, or the name is none.
func (s *Source) Instances(name string) (*skipperpb.FunctionInstances, bool) {
	key, err := xds.ParseInstancesName(name)
	if err != nil {
		return nil, false
	}
	return s.list(key), s.Pods.Known(key.Namespace, key.Deployment)
}

// list is read after its version: it is at least as new as it says.
func (s *Source) list(key fn.Key) *skipperpb.FunctionInstances {
	version := s.Pods.Watermark(key.Namespace)
	var routable []*skipperpb.Instance
	for _, p := range s.Pods.Instances(key) {
		if p.Routable() {
			routable = append(routable, pool.Instance(p, s.Shards))
		}
	}
	return resource.Instances(xds.InstancesName(key), routable, version)
}
