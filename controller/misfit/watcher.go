package misfit

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"skipper/controller/heartbeat"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
)

// lookEvery is above speaksWithin, so that a router that has ended is not taken
// for alive at two looks in a row.
const lookEvery = 20 * time.Second

// Config of a Watcher; all fields are required.
type Config struct {
	// Listen is that of the *pool.View.
	Listen  func(func(pool.Event)) (cancel func())
	Routers func(now time.Time) []heartbeat.Router
	// Event is told what is found, by the one replica that Tells.
	Event      func(*skipperpb.Event)
	Tells      func() bool
	Registerer prometheus.Registerer
	Log        *zap.Logger
}

// Watcher looks for misfits. Safe for concurrent use.
type Watcher struct {
	cfg Config
	log *zap.Logger

	mu sync.Mutex
	// The fields below are guarded by mu.
	held  map[string]held // by UID
	twins map[string][]string
	pools map[pool.Name]string
	nodes map[string]string
}

// New returns a Watcher that looks while Run runs.
func New(cfg Config) *Watcher {
	w := &Watcher{cfg: cfg, log: cfg.Log.Named("misfit"), held: map[string]held{}}
	gauge := func(kind string, count func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "skipper_controller_misconfigurations",
			Help:        "What is set up wrongly now: pool_selector (pools whose ReplicaSet keeps claimed pods), envoy_node_id (node ids that several gateways use). The log and GetClusterState say what to do.",
			ConstLabels: prometheus.Labels{"kind": kind},
		}, func() float64 { return float64(count()) })
	}
	cfg.Registerer.MustRegister(
		gauge("pool_selector", func() int { return len(w.Pools()) }),
		gauge("envoy_node_id", func() int { return len(w.Nodes()) }))
	return w
}

// Run looks until the context ends.
func (w *Watcher) Run(ctx context.Context) error {
	defer w.cfg.Listen(w.observe)()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			w.look(now)
		}
	}
}

// observe keeps up which pods are held.
func (w *Watcher) observe(e pool.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !isHeld(e.New) {
		delete(w.held, e.Pod().UID)
		return
	}
	h := held{pod: *e.New, since: time.Now()}
	if known, ok := w.held[h.pod.UID]; ok {
		h.since = known.since
	}
	w.held[h.pod.UID] = h
}

// look finds what is wrong now, and says what was not known before.
func (w *Watcher) look(now time.Time) {
	routers := w.cfg.Routers(now)
	w.mu.Lock()
	pools, nodes := w.pools, w.nodes
	w.pools = keepers(w.held, now)
	seen := twins(routers, now)
	w.nodes, w.twins = confirmed(w.twins, seen), seen
	newPools, newNodes := w.pools, w.nodes
	w.mu.Unlock()
	for name, what := range newPools {
		if _, known := pools[name]; !known {
			w.say(&skipperpb.Function{Namespace: name.Namespace, Deployment: name.Deployment}, what)
		}
	}
	for node, what := range newNodes {
		if _, known := nodes[node]; !known {
			w.say(nil, what)
		}
	}
}

// say tells of one misfit. F names the pool; nil: it is about none.
func (w *Watcher) say(f *skipperpb.Function, what string) {
	w.log.Warn("set up wrongly", zap.String("namespace", f.GetNamespace()), zap.String("deployment", f.GetDeployment()), zap.String("problem", what))
	if w.cfg.Tells() {
		w.cfg.Event(&skipperpb.Event{
			Function: f, Type: skipperpb.EventType_EVENT_TYPE_MISCONFIGURED,
			Severity: skipperpb.EventSeverity_EVENT_SEVERITY_WARN, Message: what,
		})
	}
}

// Pools are those that are set up wrongly, each with what to do.
func (w *Watcher) Pools() map[pool.Name]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.pools)
}

// Nodes are the node ids that several gateways use, each with what to do.
func (w *Watcher) Nodes() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.nodes)
}
