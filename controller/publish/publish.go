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
	"slices"
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

// Progress follows what is published: *withdraw.Tracker. Its methods must be
// quick and must not call the Publisher.
type Progress interface {
	// Observe is called for each change, before the lists that show it are built.
	Observe(e pool.Event)
	// Mark is called before lists are built, and Published when they are served.
	Mark() uint64
	Published(mark, generation uint64, functions map[fn.Key]struct{})
	// Allowed says whether a free pod may be shown to Envoy at its address.
	Allowed(p *pool.Pod) (ok bool, reason string)
}

// gap is the least time between two changes: at 50,000 endpoints one costs each
// Envoy a few milliseconds, so a storm of events must not become one of
// changes. It delays no change that comes alone.
const gap = 2 * time.Millisecond

// Publisher publishes a view. Use New.
type Publisher struct {
	pods     pods
	sink     sink
	source   *Source
	progress Progress
	logger   *zap.Logger
	changes  prometheus.Counter

	wake chan struct{} // 1: a token says that pending may have something

	mu      sync.Mutex
	pending pending

	// published is what the sink has, and fenced are the UIDs of free pods that
	// it must not have yet; both belong to Run.
	published map[string]resource.Endpoint
	fenced    map[string]struct{}
}

// pending is what has changed since the last change was built.
type pending struct {
	pods      map[string]*pool.Pod // by UID; nil: removed
	functions map[fn.Key]struct{}
	// ended are those of functions of which an instance has ended. Somebody may
	// have heard of it elsewhere, whose list is the same with it or without.
	ended map[fn.Key]struct{}
	again []string // UIDs of pods to look at again
}

func newPending() pending {
	return pending{pods: map[string]*pool.Pod{}, functions: map[fn.Key]struct{}{}, ended: map[fn.Key]struct{}{}}
}

// New makes a publisher of v to s. Source must be the one that s was made with,
// or one of the same view.
func New(v pods, s sink, source *Source, w Progress, logger *zap.Logger, r prometheus.Registerer) *Publisher {
	p := &Publisher{
		pods: v, sink: s, source: source, progress: w, logger: logger,
		wake: make(chan struct{}, 1), pending: newPending(), published: map[string]resource.Endpoint{}, fenced: map[string]struct{}{},
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
	p.progress.Observe(e)
	p.mu.Lock()
	p.pending.pods[e.Pod().UID] = e.New
	for _, pod := range []*pool.Pod{e.Old, e.New} {
		if pod != nil && pod.Function != nil {
			p.pending.functions[pod.Key] = struct{}{}
			if ends(e) {
				p.pending.ended[pod.Key] = struct{}{}
			}
		}
	}
	p.mu.Unlock()
	p.remind()
}

// ends says that an instance is to take no more requests, or that its end has
// become part of what lists may be compared by.
func ends(e pool.Event) bool {
	if e.New != nil && e.New.State() < pool.Draining {
		return false
	}
	return e.Old == e.New || e.Old == nil || e.Old.State() < pool.Draining
}

func (p *Publisher) remind() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Republish has the list of a function published once more, soon, with the
// newest version number, to those who have the same too.
func (p *Publisher) Republish(key fn.Key) {
	p.mu.Lock()
	p.pending.functions[key], p.pending.ended[key] = struct{}{}, struct{}{}
	p.mu.Unlock()
	p.remind()
}

// Reconsider has the publisher look again at free pods whose address could not
// be used.
func (p *Publisher) Reconsider(uids ...string) {
	p.mu.Lock()
	p.pending.again = append(p.pending.again, uids...)
	p.mu.Unlock()
	p.remind()
}

func (p *Publisher) flush() {
	mark := p.progress.Mark()
	p.mu.Lock()
	todo := p.pending
	p.pending = newPending()
	p.mu.Unlock()
	c := p.change(todo)
	if len(c.Remove)+len(c.Upsert)+len(c.Instances)+len(c.Families) == 0 {
		return
	}
	p.changes.Inc()
	p.progress.Published(mark, p.sink.Apply(c), todo.functions)
}

// change builds what the sink does not have yet, and notes it as published.
func (p *Publisher) change(todo pending) server.Change {
	c := server.Change{Again: map[string]bool{}}
	p.lookAgain(todo)
	for uid, pod := range todo.pods {
		delete(p.fenced, uid)
		if announces(pod) && !slices.Contains(c.Families, pod.Protocol) {
			c.Families = append(c.Families, pod.Protocol)
		}
		was, known := p.published[uid]
		switch {
		case pod == nil || !pod.Publishable() || p.fence(pod):
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
		if _, ended := todo.ended[key]; ended {
			c.Again[xds.InstancesName(key)] = true
		}
	}
	return c
}

// announces says that the pod will need the clusters of its protocol. The first
// of all pods with a protocol would be ready, and be sent requests, while Envoy
// still adds the clusters, if they came with its address.
func announces(pod *pool.Pod) bool {
	return pod != nil && pod.Protocol != "" && pod.Addr() == "" && !pod.Deleting && !pod.Finished() && !pod.HostNetwork
}

// lookAgain adds pods whose address was not to be used. Only pods of which the
// listener told are looked at: it will tell of their end, too.
func (p *Publisher) lookAgain(todo pending) {
	for _, uid := range todo.again {
		_, told := todo.pods[uid]
		if _, fenced := p.fenced[uid]; !fenced || told {
			continue
		}
		if pod, known := p.pods.Pod(uid); known {
			todo.pods[uid] = &pod
		}
	}
}

// fence says that the pod is free and must not be used at its address yet: a
// stale table would find it there. A claimed one is its tenant's, whoever
// claimed it.
func (p *Publisher) fence(pod *pool.Pod) bool {
	if pod.State() != pool.Unassigned {
		return false
	}
	if ok, _ := p.progress.Allowed(pod); ok {
		return false
	}
	p.fenced[pod.UID] = struct{}{}
	return true
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
