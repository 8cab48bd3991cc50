package supervise

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/client-go/util/workqueue"

	"skipper/controller/heartbeat"
	"skipper/controller/pool"
	"skipper/controller/scale"
	"skipper/controller/usage"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// pods is what the supervisors see of the cluster: *pool.View.
type pods interface {
	Instances(key fn.Key) []pool.Pod
	ReplicaSets(namespace, deployment string) []pool.ReplicaSet
	Unassigned(namespace, deployment string) []*pool.Pod
}

// acquirer makes instances out of pool pods: *acquire.Acquirer.
type acquirer interface {
	// GetOrAcquire answers with an instance, and assigns one only if there is
	// none and no other caller is having one assigned.
	GetOrAcquire(ctx context.Context, f *skipperpb.Function, exclude []string) (pool.Pod, error)
	// Acquire always assigns one more.
	Acquire(ctx context.Context, f *skipperpb.Function) (pool.Pod, error)
	// Replace is Acquire that does not wait for a pod, and takes only one that an
	// active ReplicaSet made.
	Replace(ctx context.Context, f *skipperpb.Function) (pool.Pod, error)
	// Rewrite has the pod's annotation say f, in the background.
	Rewrite(p pool.Pod, f *skipperpb.Function) error
	// Reassign has a pod accept the assignment that it carries once more.
	Reassign(ctx context.Context, p pool.Pod) error
	// TakeUp has instances assigned that their claimer has left. It does not wait,
	// and returns the UIDs of all that are being asked to accept; each of them
	// accepts within the AssignTimeout, or drains.
	TakeUp(ctx context.Context, key fn.Key) (asked map[string]bool)
}

// retirer ends instances: *retire.Retirer. No method waits for the pod to be
// gone; each may be called again for the same pod.
type retirer interface {
	Drain(ctx context.Context, p pool.Pod, reason string) error
	DrainSoon(p pool.Pod, reason string)
	DeleteSoon(p pool.Pod, reason string)
}

// activity is what is known of the requests in progress: *inflight.Store, or
// *heartbeat.Store without load reports.
type activity interface {
	Activity(key fn.Key, now time.Time) heartbeat.Activity
	// InFlightOf is known only if every router says where its requests are.
	InFlightOf(key fn.Key, uid string, now time.Time) (n uint64, known bool)
	// Named is when the pod was last said to have a request in progress.
	Named(key fn.Key, uid string, now time.Time) (at time.Time, ok bool)
	Forget(key fn.Key)
}

// meter is what instances use: *usage.Reader.
type meter interface {
	// Metered tells whether anything can be known of the namespace's pods.
	Metered(namespace string) bool
	Of(namespace, pod string, now time.Time) (usage.Usage, bool)
}

// Options are the supervisors' settings; all durations must be positive.
type Options struct {
	Policy scale.Policy
	// Interval between two converges of a function, give or take a tenth.
	Interval time.Duration
	// AssignTimeout is how long an assignment may take (--function-assign-timeout);
	// an instance that is not ready after twice as long is stuck.
	AssignTimeout time.Duration
	// Workers converge in parallel; 0: 4.
	Workers int
	// Grace is how long Run waits, after its context has ended, for
	// assignments under way before it cuts them; 0: not at all.
	Grace time.Duration
	// GrowthPerFunction bounds the assignments that a supervisor has under way
	// at a time, Growth those of all; 0: 8 and 1024.
	GrowthPerFunction, Growth int
	// Replacements bounds the stale instances that are replaced at a time
	// (--max-concurrent-stale-replacements); 0: none is ever replaced.
	Replacements int
	// Agreement is for how long nobody may have spoken of a configuration before
	// another one takes over: 3 heartbeat intervals of routers; 0: 15 s.
	Agreement time.Duration
}

// defaultAgreement is 3 times the routers' default --heartbeat-interval.
const defaultAgreement = 15 * time.Second

func (o Options) withDefaults() Options {
	for _, f := range []struct {
		value    *int
		fallback int
	}{{&o.Workers, 4}, {&o.GrowthPerFunction, 8}, {&o.Growth, 1024}} {
		if *f.value == 0 {
			*f.value = f.fallback
		}
	}
	if o.Agreement == 0 {
		o.Agreement = defaultAgreement
	}
	return o
}

// Deps are what the supervisors work with; all fields are required unless
// marked optional.
type Deps struct {
	Pods       pods
	Heartbeats activity
	Acquirer   acquirer
	Retirer    retirer
	// Responsible tells whether this replica scales the function.
	Responsible func(fn.Key) bool
	// Hears is since when this replica has heard what routers say, without a break.
	// Optional: nil is Policy.StartedAt.
	Hears func(now time.Time) time.Time
	// Usage is what CPU and memory are scaled on. Optional: nil knows nothing.
	Usage meter
	// Event is told what an operator may want to read later. Optional. It is
	// called with locks held: it must be quick and must not call back.
	Event      func(*skipperpb.Event)
	Logger     *zap.Logger
	Registerer prometheus.Registerer
}

// Supervisors owns all supervisors. Safe for concurrent use.
type Supervisors struct {
	Deps
	opts    Options
	metrics *metrics
	growth  sync.WaitGroup // assignments under way

	mu          sync.Mutex
	queue       workqueue.TypedDelayingInterface[fn.Key] // nil unless running
	supervisors map[fn.Key]*supervisor
	growing     int      // assignments under way, replacements among them
	replacing   int      // replacements under way
	waiting     []fn.Key // functions that found no place for a replacement
	waits       map[fn.Key]bool
	stopping    bool // no new assignment may begin
}

// supervisor is what is remembered of one function. Guarded by Supervisors.mu,
// but for the last three, which belong to whoever converges the function.
type supervisor struct {
	force        force
	requestedAt  time.Time     // of the last Scale above 0
	requested    int           // by Scale, until the window has it
	growing      int           // assignments under way, replacements among them
	failedAt     time.Time     // when one of them last failed
	failure      quiet[string] // why
	freed        chan struct{} // closed when one of them has ended
	hadInstances bool
	reassigning  map[string]bool        // UIDs of pods that are asked to accept again
	replacing    map[string]replacement // stale instances, by UID

	// latest is the newest decision of this replica while it was responsible;
	// nil: there is none. Guarded by Supervisors.mu.
	latest *Latest

	window   scale.Window
	decision quiet[decided]
	trace    scale.Trace // without Assigned, which the instances tell
	// busy is when each oneshot pod was last known to serve; nil otherwise.
	busy map[string]time.Time
}

// New makes the supervisors; nothing happens before Run.
func New(o Options, d Deps) *Supervisors {
	s := &Supervisors{Deps: d, opts: o.withDefaults(), supervisors: map[fn.Key]*supervisor{}, waits: map[fn.Key]bool{}}
	s.metrics = newMetrics(d.Registerer, s.count)
	return s
}

// policy is what functions are scaled by at now.
func (s *Supervisors) policy(now time.Time) scale.Policy {
	p := s.opts.Policy
	if s.Hears != nil {
		p.StartedAt = s.Hears(now)
	}
	return p
}

// Run converges until ctx ends, then waits for the assignments under way, for
// Grace at most. It must be called once.
func (s *Supervisors) Run(ctx context.Context) error {
	acting, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	q := workqueue.NewTypedDelayingQueue[fn.Key]()
	s.start(q)
	var workers sync.WaitGroup
	for range s.opts.Workers {
		workers.Go(func() { s.work(acting, q) })
	}
	<-ctx.Done()
	s.stop()
	grace := time.AfterFunc(s.opts.Grace, cut)
	defer grace.Stop()
	q.ShutDown()
	workers.Wait()
	s.growth.Wait()
	return nil
}

// start takes over what was heard of before, spread over one interval.
func (s *Supervisors) start(q workqueue.TypedDelayingInterface[fn.Key]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = q
	for key := range s.supervisors {
		q.AddAfter(key, s.part())
	}
}

func (s *Supervisors) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue, s.stopping = nil, true
}

func (s *Supervisors) work(ctx context.Context, q workqueue.TypedDelayingInterface[fn.Key]) {
	for {
		key, stopped := q.Get()
		if stopped {
			return
		}
		if !q.ShuttingDown() && s.convergeSafely(ctx, key) {
			q.AddAfter(key, s.interval())
		}
		q.Done(key)
	}
}

// convergeSafely keeps a fault in one function's converge from touching others.
func (s *Supervisors) convergeSafely(ctx context.Context, key fn.Key) (again bool) {
	defer func() {
		if r := recover(); r != nil {
			s.panicked(key, r)
			again = true
		}
	}()
	return s.converge(ctx, key, time.Now())
}

func (s *Supervisors) panicked(key fn.Key, cause any) {
	s.metrics.panics.Inc()
	s.Logger.Error("supervisor panicked", zap.Stringer("function", key), zap.Any("panic", cause), zap.ByteString("stack", debug.Stack()))
}

// interval is the scale interval give or take a tenth, so that functions that
// began together do not stay together.
func (s *Supervisors) interval() time.Duration {
	return s.opts.Interval*9/10 + rand.N(s.opts.Interval/5+1)
}

// part is a random part of the scale interval.
func (s *Supervisors) part() time.Duration { return rand.N(s.opts.Interval) + 1 }

// Touch makes sure that f has a supervisor and tells it f's configuration. It
// is called for every GetInstance and costs little when there is one.
func (s *Supervisors) Touch(f *skipperpb.Function) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heardLocked(f, s.interval())
}

// Heard is called after a heartbeat of f was recorded. A function that has no
// instance is converged at once, because somebody uses it; but not where that
// has just been tried in vain.
func (s *Supervisors) Heard(f *skipperpb.Function) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sup := s.heardLocked(f, 0); !sup.hadInstances && time.Since(sup.failedAt) >= s.opts.Interval {
		s.queueLocked(fn.KeyOf(f), 0)
	}
}

// Observe is the listener of the view: assigned pods that nobody asked this
// replica for are adopted, and lost ones noticed without waiting for the
// interval.
func (s *Supervisors) Observe(e pool.Event) {
	p := e.Pod()
	if p.Function == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Kind == pool.Removed || p.State() >= pool.Terminating {
		if _, ok := s.supervisors[p.Key]; ok {
			s.queueLocked(p.Key, 0)
		}
		return
	}
	sup := s.ensureLocked(p.Key, s.part())
	sup.force.found(p.Function, p.AssignedAt, time.Now())
	sup.hadInstances = true
	if p.Forgotten && p.Ready {
		s.queueLocked(p.Key, 0)
	}
}

// ensureLocked finds or makes the supervisor; a new one converges after first.
func (s *Supervisors) ensureLocked(key fn.Key, first time.Duration) *supervisor {
	sup, ok := s.supervisors[key]
	if !ok {
		sup = &supervisor{trace: scale.Trace{Since: time.Now()}}
		s.supervisors[key] = sup
		s.queueLocked(key, first)
	}
	return sup
}

// heardLocked is ensureLocked for somebody who uses f.
func (s *Supervisors) heardLocked(f *skipperpb.Function, first time.Duration) *supervisor {
	key, now := fn.KeyOf(f), time.Now()
	sup := s.ensureLocked(key, first)
	if f.GetOneshot() { // each request brings its own
		sup.force.take(f, now)
		return sup
	}
	s.agreedLocked(key, sup, sup.force.heard(f, s.opts.Agreement, now))
	return sup
}

func (s *Supervisors) queueLocked(key fn.Key, after time.Duration) {
	if s.queue != nil {
		s.queue.AddAfter(key, after)
	}
}

// Functions lists the functions that have a supervisor, sorted by name.
func (s *Supervisors) Functions() []*skipperpb.Function {
	s.mu.Lock()
	out := make([]*skipperpb.Function, 0, len(s.supervisors))
	for _, sup := range s.supervisors {
		out = append(out, sup.force.current)
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b *skipperpb.Function) int {
		return strings.Compare(fn.KeyOf(a).String(), fn.KeyOf(b).String())
	})
	return out
}

func (s *Supervisors) count() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(len(s.supervisors))
}

// What Scale fails with when it is not the acquirer's error.
var (
	errStopping = errors.New("controller is stopping")
	errPanicked = errors.New("assignment panicked: see the log")
)
