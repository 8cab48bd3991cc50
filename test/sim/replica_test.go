package sim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"

	"skipper/controller/acquire"
	"skipper/controller/assign"
	"skipper/controller/claim"
	"skipper/controller/heartbeat"
	"skipper/controller/inflight"
	"skipper/controller/limit"
	"skipper/controller/pool"
	"skipper/controller/publish"
	"skipper/controller/retire"
	"skipper/controller/ring"
	"skipper/controller/scale"
	"skipper/controller/server"
	"skipper/controller/supervise"
	"skipper/controller/withdraw"
	"skipper/proto/fn"
)

// replica is a controller, put together as cmd/controller does.
type replica struct {
	w     *world
	ip    string
	clock time.Duration      // by how much it is ahead
	life  context.Context    //nolint:containedctx // the process's own, ended by kill
	kill  context.CancelFunc // ends everything at once
	stop  context.CancelFunc // asks to stop
	tasks sync.WaitGroup
	parts
	informers

	telling sync.Mutex // while the supervisors are told of a caller

	mu sync.Mutex
	// The fields below are guarded by mu.
	isServing, stopping bool
	seen                []ring.Replica
	joined              []string
}

// parts are the real ones.
type parts struct {
	view        *pool.View
	functions   *pool.Parser
	beats       *heartbeat.Store
	addresses   *inflight.Addresses
	loads       *inflight.Store
	ring        *ring.Members
	claimer     *claim.Claimer
	acquirer    *acquire.Acquirer
	retirer     *retire.Retirer
	supervisors *supervise.Supervisors
	tracker     *withdraw.Tracker
	publisher   *publish.Publisher
	lists       *lists
	server      *server.Server
	policy      scale.Policy
}

// namespaces of both pools.
var namespaces = []string{"east", "west"}

// startReplica begins another controller, from what the API server has now.
func (w *world) startReplica() {
	w.made++
	r := &replica{w: w, ip: fmt.Sprint("10.0.0.", w.made), clock: w.upTo(-maxSkew/2, maxSkew/2)}
	r.clock = r.clock.Truncate(time.Millisecond)
	r.life, r.kill = context.WithCancel(context.Background())
	r.build()
	w.say(r.ip, "starts, its clock is off by %s", r.clock)
	r.firstLists()
	r.run()
	w.tellMembers(r)
}

func (r *replica) build() {
	log, reg := zap.New(core{r.w, r.ip, nil}), prometheus.NewRegistry()
	r.policy = scale.Policy{HeartbeatTimeout: heartbeatTimeout, Stabilization: stabilization, Tolerance: 0.1, StartedAt: time.Now()}
	if r.w.broken.unprotected {
		r.policy.StartedAt = time.Now().Add(-time.Hour)
	}
	r.view, r.functions = pool.NewView(), pool.NewParser(100)
	r.beats = heartbeat.NewStore(heartbeatTimeout, heartbeat.DefaultLimits())
	r.addresses = inflight.NewAddresses(shards)
	r.loads = inflight.New(inflight.Config{
		Pods: r.view, Addresses: r.addresses, Heartbeats: r.beats, Expiry: drainTimeout,
		Protected: r.policy.Protected, Registerer: reg, Log: log,
	})
	r.ring = ring.NewMembers(time.Second)
	stages := claim.NewMetrics(reg)
	r.claimer = claim.New(claim.Config{
		Pods: client{r}, View: r.view, Functions: r.functions, Spread: r.spread, Allowed: r.allowed,
		Tenants: limit.NewTenants(0, 100), Metrics: stages, Log: log,
	})
	r.retirer = retire.New(retire.Config{
		Pods: client{r}, View: r.view, Functions: r.functions, Limits: retire.Limits{Timeout: drainTimeout},
		Progress: r.drained, Unreadable: 2 * assignTimeout, Responsible: r.responsible, Grace: time.Second, Registerer: reg, Log: log,
	})
	r.acquirer = acquire.New(acquire.Config{
		Claimer: r.claimer, Discarder: retirer{r}, Refusals: assign.NewRefusals(100), Poster: poster{r}, View: r.view,
		Functions: r.functions, Pods: client{r}, Grace: time.Second, Stages: stages, Registerer: reg, Log: log,
	})
	r.buildSupervisors(reg, log)
	r.buildPublisher(reg, log)
	r.server = server.New(server.Options{Namespaces: namespaces, Shards: shards}, server.Deps{
		Pods: r.view, Heartbeats: r.beats, Acquirer: r.acquirer, Retirer: r.retirer, Supervisors: hearing{r.supervisors, r},
		Forwarder: forwarder{r}, Live: r.live, Logger: log, Registerer: reg,
	})
}

func (r *replica) buildSupervisors(reg prometheus.Registerer, log *zap.Logger) {
	b := r.w.broken
	policy := r.policy
	if b.impatient {
		policy.HeartbeatTimeout = 2 * time.Second
	}
	r.supervisors = supervise.New(supervise.Options{
		Policy: policy, Interval: scaleInterval, AssignTimeout: b.assignTimeout(), Grace: time.Second, Replacements: 3, Agreement: b.agreement(),
	}, supervise.Deps{
		Pods: b.pods(r.view), Heartbeats: b.activity(r.loads), Acquirer: b.acquirer(r.acquirer), Retirer: retirer{r}, Responsible: r.responsible,
		Logger: log, Registerer: reg,
	})
}

func (r *replica) buildPublisher(reg prometheus.Registerer, log *zap.Logger) {
	source := &publish.Source{Pods: r.view, Shards: shards}
	r.lists = newLists(source)
	r.tracker = withdraw.New(withdraw.Config{
		Self: r.ip, Staleness: staleness, View: r.view, Subscribers: r.lists, Peers: peers{r}, FreshAt: r.freshAt,
		Republish:  func(k fn.Key) { r.publisher.Republish(k) },
		Freed:      func(uids []string) { r.publisher.Reconsider(uids...); r.claimer.Reconsider() },
		Registerer: reg, Log: log,
	})
	r.lists.observer = r.tracker.Observer()
	r.publisher = publish.New(r.view, r.lists, source, r.tracker, log, reg)
}

// run begins all parts, in the order in which they depend on each other.
func (r *replica) run() {
	background, stopAll := context.WithCancel(r.life)
	ctx, stop := context.WithCancel(background)
	r.stop = stop
	part := func(run func(context.Context) error) {
		r.tasks.Go(func() { _ = run(background) })
	}
	supervised := make(chan struct{})
	part(r.claimer.Run)
	part(r.tracker.Run)
	part(r.acquireAndRetire)
	part(r.shareLoads)
	part(func(background context.Context) error {
		return r.publisher.Run(background, func() { r.setServing(ctx.Err() == nil) })
	})
	r.tasks.Go(func() {
		defer close(supervised)
		defer r.view.Listen(hearing{r.supervisors, r}.Observe)()
		_ = r.supervisors.Run(ctx)
	})
	r.tasks.Go(func() {
		<-ctx.Done()
		r.setServing(false)
		<-supervised
		stopAll()
	})
	r.tracker.Recall(r.w.recalled())
}

func (r *replica) acquireAndRetire(ctx context.Context) error {
	retiring, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var retirer sync.WaitGroup
	retirer.Go(func() { _ = r.retirer.Run(retiring) })
	defer retirer.Wait()
	defer stop()
	return r.acquirer.Run(ctx)
}

func (r *replica) shareLoads(ctx context.Context) error {
	defer r.view.Listen(r.addresses.Observe)()
	return inflight.NewSharer(r.loads, peers{r}, r.ip).Run(ctx)
}

func (r *replica) spread() claim.Spread {
	return claim.Spread{Self: r.ip, Replicas: r.ring.Current().Members()}
}

func (r *replica) allowed(p *pool.Pod) (ok bool, reason string) { return r.tracker.Allowed(p) }

func (r *replica) responsible(k fn.Key) bool {
	if r.w.broken.ringless {
		return true
	}
	owner, ok := r.ring.Current().Owner(k.Hash())
	return ok && owner == r.ip
}

// drained is how far a drain is.
func (r *replica) drained(p pool.Pod) retire.Progress {
	return r.w.broken.witnesses(retire.Witnesses{Acknowledged: r.tracker.Acknowledged, InFlightSince: r.loads.InFlightSince}).Progress(p)
}

func (r *replica) live(ctx context.Context, namespace, name string) (pool.Pod, bool, error) {
	c := podClient{r: r, namespace: namespace}
	f, err := c.travel(ctx, "list", name)
	if err != nil || f != arrives {
		return pool.Pod{}, false, errDown
	}
	r.w.mu.Lock()
	p, ok := r.w.api.pods[namespace+"/"+name]
	r.w.mu.Unlock()
	if !ok {
		return pool.Pod{}, false, nil
	}
	read := pool.FromPod(r.local(p), r.functions)
	r.view.ExpectWritten(read)
	return read, true, nil
}

// killReplica ends a process without a word.
func (w *world) killReplica(r *replica) {
	w.say(r.ip, "is killed")
	w.remove(r)
	r.kill()
	r.tasks.Wait()
	w.lostReplica(r)
}

// stopReplica ends one in good order.
func (w *world) stopReplica(r *replica) {
	w.say(r.ip, "stops")
	r.mu.Lock()
	r.stopping = true
	r.mu.Unlock()
	w.tellMembers(r)
	r.setServing(false)
	w.remove(r)
	w.lostReplica(r)
	w.calls.Go(func() {
		if r.rest(context.Background(), time.Second) {
			r.stop()
		}
		r.tasks.Wait()
		r.kill()
	})
}

func (w *world) remove(r *replica) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replicas = slices.DeleteFunc(slices.Clone(w.replicas), func(other *replica) bool { return other == r })
}

// lostReplica has everybody notice that a replica is gone.
func (w *world) lostReplica(r *replica) {
	for _, g := range w.gateways {
		g.lost(r)
	}
	w.tellMembers(r)
}

// tellMembers has all replicas hear of a change of one, each in its time.
func (w *world) tellMembers(about *replica) {
	for _, r := range w.replicas {
		lag := w.upTo(0, time.Second)
		if w.odds.on[ringsDiffer] && !w.calm {
			lag = w.upTo(0, 12*time.Second)
		}
		if r == about {
			lag = 0
		}
		w.after(lag, func() { w.see(r) })
	}
}

// see shows a replica who is there, as it is now.
func (w *world) see(r *replica) {
	var seen []ring.Replica
	for _, other := range w.replicas {
		other.mu.Lock()
		seen = append(seen, ring.Replica{IP: other.ip, Ready: other.isServing, Terminating: other.stopping})
		other.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = seen
	r.rejoinLocked()
}

func (r *replica) setServing(serving bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isServing == serving {
		return
	}
	r.isServing = serving
	r.rejoinLocked()
	if serving {
		r.w.after(0, func() { r.w.tellMembers(r) })
	}
}

func (r *replica) serving() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isServing
}

func (r *replica) rejoinLocked() {
	joined := ring.Joined(r.ip, r.isServing, r.seen)
	if slices.Equal(joined, r.joined) {
		return
	}
	r.joined = joined
	r.ring.Set(joined...)
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.w.oracle.rejoinedLocked(r.ip, joined)
	r.w.trace.add(r.ip, "has %v on its ring", joined)
}

// change is an entry of the API server's log.
type change struct {
	pod     *corev1.Pod // nil: of a ReplicaSet
	removed bool
	set     pool.ReplicaSet
	due     time.Time
}

// informers show the log late. The world's lock guards them.
type informers struct {
	pods, sets []change
	lag        time.Duration // of each change at most
	frozenTil  time.Time
	freshTil   time.Time // a time up to which all has been shown
}

// showLocked has all replicas shown a change.
func (w *world) showLocked(c change) {
	for _, r := range w.replicas {
		c.due = time.Now().Add(between(w.luckLocked("lag", r.ip), 0, max(r.lag, 50*time.Millisecond)))
		if c.due.Before(r.frozenTil) {
			c.due = r.frozenTil
		}
		queue := &r.pods
		if c.pod == nil {
			queue = &r.sets
		}
		if n := len(*queue); n > 0 && c.due.Before((*queue)[n-1].due) {
			c.due = (*queue)[n-1].due // in their order
		}
		*queue = append(*queue, c)
		w.afterLocked(time.Until(c.due), func() { r.inform(queue) })
	}
}

// inform shows the next change.
func (r *replica) inform(queue *[]change) {
	r.w.mu.Lock()
	if r.life.Err() != nil || len(*queue) == 0 {
		r.w.mu.Unlock()
		return
	}
	c := (*queue)[0]
	*queue = (*queue)[1:]
	r.w.mu.Unlock()
	switch {
	case c.pod == nil:
		r.view.ApplyReplicaSet(c.set)
	case c.removed:
		read := pool.FromPod(r.local(c.pod), r.functions)
		r.view.Remove(read.Namespace, read.UID, read.Version)
	default:
		read := pool.FromPod(r.local(c.pod), r.functions)
		r.view.Apply(read)
		r.forget(read)
	}
}

// forget is for a world in which an old object undoes what was written since.
func (r *replica) forget(read pool.Pod) {
	if !r.w.broken.noOverlay {
		return
	}
	read.Version = 0 // unknown, which is taken for newer
	r.w.every(200*time.Millisecond, func() bool {
		now, known := r.view.Pod(read.UID)
		if known && r.life.Err() == nil && now.State() <= pool.Assigned {
			r.view.Apply(read)
		}
		return known && r.life.Err() == nil && read.State() == pool.Unassigned && time.Since(read.CreatedAt) < 5*time.Second
	})
}

// freshAt is what probes of the watch would say.
func (r *replica) freshAt() time.Time {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if len(r.pods) == 0 {
		r.freshTil = time.Now().Add(-5 * time.Second)
	}
	return r.freshTil
}

func (r *replica) firstLists() {
	w := r.w
	w.mu.Lock()
	r.lag = 50 * time.Millisecond
	w.replicas = append(w.replicas, r)
	w.oracle.replicas[r.ip] = r
	all := w.podsLocked()
	for _, d := range w.pools {
		for n := 1; n <= d.revision; n++ {
			r.view.ApplyReplicaSet(d.replicaSet(n))
		}
	}
	w.mu.Unlock()
	for _, p := range all {
		r.view.Apply(pool.FromPod(r.local(p), r.functions))
	}
}

// core notes what a controller logs, in words only where they are read.
type core struct {
	w      *world
	who    string
	fields []zapcore.Field
}

// Enabled implements zapcore.Core.
func (c core) Enabled(l zapcore.Level) bool { return l >= zapcore.InfoLevel }

// With implements zapcore.Core.
func (c core) With(fields []zapcore.Field) zapcore.Core {
	return core{c.w, c.who, append(slices.Clone(c.fields), fields...)}
}

// Check implements zapcore.Core.
func (c core) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write implements zapcore.Core.
func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	fields = append(slices.Clone(c.fields), fields...)
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.trace.put(line{who: c.who, logged: func() string {
		encoded := zapcore.NewMapObjectEncoder()
		for _, f := range fields {
			f.AddTo(encoded)
		}
		return fmt.Sprint(e.LoggerName, ": ", e.Message, " ", encoded.Fields)
	}})
	return nil
}

// Sync implements zapcore.Core.
func (c core) Sync() error { return nil }

// retirer notes why supervisors drain, and may be broken.
type retirer struct{ r *replica }

func (t retirer) Drain(ctx context.Context, p pool.Pod, reason string) error {
	if t.r.w.broken.cuts {
		t.r.retirer.DeleteSoon(p, reason)
		return nil
	}
	t.note(p, reason)
	return t.r.retirer.Drain(ctx, p, reason)
}

func (t retirer) DrainSoon(p pool.Pod, reason string) {
	if b := t.r.w.broken; b.cuts || b.abrupt {
		t.DeleteSoon(p, reason)
		return
	}
	t.note(p, "gives up: "+reason)
	shown, ok := t.r.view.Pod(p.UID)
	t.r.w.mu.Lock()
	t.r.w.oracle.knew[p.UID+t.r.ip] = ok && shown.State() == pool.Ready
	t.r.w.mu.Unlock()
	t.r.retirer.DrainSoon(p, reason)
}

func (t retirer) note(p pool.Pod, reason string) {
	w := t.r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.oracle.reasons[p.UID+t.r.ip] = reason
	if _, before := w.oracle.decided[p.UID+t.r.ip]; !before {
		w.oracle.decided[p.UID+t.r.ip] = time.Now()
	}
}

func (t retirer) DeleteSoon(p pool.Pod, reason string) {
	t.note(p, reason)
	t.r.retirer.DeleteSoon(p, reason)
}
