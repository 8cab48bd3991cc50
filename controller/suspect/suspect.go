// Package suspect looks at instances to which requests fail: a pod that is gone
// leaves routing at once, also where the watch does not show it yet.
//
// Routers say which instances failed; that is a reason to look and no verdict.
// What counts is what the API server says of the pod. Nothing is drained or
// deleted here, and of a healthy pod no more than a line is written.
package suspect

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

const (
	// looksPerSecond bounds the reads of all instances together, which pass by the
	// client's limits. A cluster in which more fail at a time has a cause that no
	// look at a pod mends.
	looksPerSecond = 5
	// pause is kept between two looks at the same pod.
	pause = 2 * time.Second
	// manyFailures within the window are worth a line in the log although the pod
	// is well, and the next line only after another window.
	manyFailures = 3
	window       = 10 * time.Second
	// mostSuspects bounds the pods that are remembered: two windows of looks, and
	// many more that wait. What does not fit is reported again if it goes on.
	mostSuspects = 1_000
	// mostPerReport bounds the UIDs that are read of one heartbeat.
	mostPerReport = 1_000
	lookTimeout   = 5 * time.Second
)

// pods is what is known of the cluster: *pool.View.
type pods interface {
	Pod(uid string) (pool.Pod, bool)
	// ExpectDeleted takes the pod out of routing.
	ExpectDeleted(uid string)
}

// Config of a Watcher; all fields are required.
type Config struct {
	Pods pods
	// Live reads a pod from the API server, and makes Pods show what it read if
	// they know the pod; false: there is none.
	Live func(ctx context.Context, namespace, name string) (pool.Pod, bool, error)
	// Responsible tells whether this replica scales the function.
	Responsible func(fn.Key) bool
	Registerer  prometheus.Registerer
	Log         *zap.Logger
}

// Watcher looks at instances that fail. Safe for concurrent use.
type Watcher struct {
	cfg     Config
	metrics metrics
	limiter *rate.Limiter

	mu sync.Mutex
	// The fields below are guarded by mu.
	queue    workqueue.TypedDelayingInterface[string] // nil unless running
	suspects map[string]*record                       // by UID
}

// New makes a watcher; it looks at nothing before Run.
func New(cfg Config) *Watcher {
	return &Watcher{
		cfg: cfg, metrics: newMetrics(cfg.Registerer),
		limiter: rate.NewLimiter(looksPerSecond, looksPerSecond), suspects: map[string]*record{},
	}
}

// Hear takes in a heartbeat message whose functions are valid, and does not
// wait. The replica that a router speaks to looks, for it may be the one that
// the router has its instances from, and so does the responsible one.
func (w *Watcher) Hear(r *skipperpb.HeartbeatRequest) {
	direct := len(r.GetForwardedFor()) == 0
	for _, h := range r.GetHeartbeats() {
		failures := h.GetFailuresByInstance()
		if len(failures) == 0 {
			continue
		}
		key, read := fn.KeyOf(h.GetFunction()), 0
		look := direct || w.cfg.Responsible(key)
		for uid, n := range failures {
			if read++; read > mostPerReport {
				break
			}
			w.hear(key, uid, n, direct, look)
		}
	}
}

func (w *Watcher) hear(key fn.Key, uid string, n uint32, direct, look bool) {
	p, known := w.cfg.Pods.Pod(uid)
	is := known && isInstance(p, key)
	if direct { // each message comes directly to one replica
		w.metrics.failed(is, n)
	}
	if is && look && n > 0 {
		w.suspect(uid, n, time.Now())
	}
}

// suspect has the pod looked at soon, once however often it is reported.
func (w *Watcher) suspect(uid string, n uint32, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue == nil {
		return
	}
	s := w.recordLocked(uid, now)
	if s == nil {
		w.metrics.looks.WithLabelValues(crowded).Inc()
		return
	}
	if at, due := s.hear(n, now); due {
		w.queue.AddAfter(uid, at.Sub(now))
	}
}

// recordLocked finds or makes the record; nil where there are too many.
func (w *Watcher) recordLocked(uid string, now time.Time) *record {
	if s := w.suspects[uid]; s != nil {
		return s
	}
	if len(w.suspects) >= mostSuspects {
		w.sweepLocked(now)
	}
	if len(w.suspects) >= mostSuspects {
		return nil
	}
	s := &record{}
	w.suspects[uid] = s
	return s
}

func (w *Watcher) sweepLocked(now time.Time) {
	for uid, s := range w.suspects {
		if s.over(now) {
			delete(w.suspects, uid)
		}
	}
}

// Run looks until ctx ends, and returns after the last look; call it once.
func (w *Watcher) Run(ctx context.Context) error {
	q := workqueue.NewTypedDelayingQueue[string]()
	w.setQueue(q)
	defer context.AfterFunc(ctx, func() {
		w.setQueue(nil)
		q.ShutDown()
	})()
	for {
		uid, ended := q.Get()
		if ended {
			return nil
		}
		w.look(ctx, uid)
		q.Done(uid)
	}
}

func (w *Watcher) setQueue(q workqueue.TypedDelayingInterface[string]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = q
}

// look reads the pod unless it has left routing meanwhile.
func (w *Watcher) look(ctx context.Context, uid string) {
	p, known := w.cfg.Pods.Pod(uid)
	if !known || !isInstance(p, p.Key) {
		w.looked(p, uid, left, nil)
		return
	}
	if w.limiter.Wait(ctx) != nil {
		return // the end
	}
	reading, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	live, found, err := w.cfg.Live(reading, p.Namespace, p.Name)
	if ctx.Err() != nil {
		return
	}
	seen := judge(p, live, found, err)
	if seen == gone {
		w.cfg.Pods.ExpectDeleted(uid)
	}
	w.looked(p, uid, seen, err)
}

// looked notes what was seen, and says so where it matters.
func (w *Watcher) looked(p pool.Pod, uid string, seen verdict, err error) {
	w.metrics.looks.WithLabelValues(seen).Inc()
	failures, say := w.settle(uid, seen, time.Now())
	if !say {
		return
	}
	w.cfg.Log.Warn("requests to an instance fail", zap.String("namespace", p.Namespace), zap.String("pod", p.Name),
		zap.String("uid", uid), zap.String("addr", p.Addr()), zap.String("function", p.Key.String()),
		zap.Uint64("failures", failures), zap.String("pod_is", seen), zap.Error(err))
}

func (w *Watcher) settle(uid string, seen verdict, now time.Time) (failures uint64, say bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.suspects[uid]
	if s == nil {
		return 0, false
	}
	return s.settle(seen, now)
}
