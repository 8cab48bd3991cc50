// Package retry runs keyed jobs in the background until each has succeeded.
package retry

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/util/workqueue"
)

// The pause after a failed attempt doubles from firstPause to longestPause.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
)

// Config of a Queue.
type Config struct {
	// Name in logs.
	Name string
	// Workers is how many jobs run at once; below 1 means 1.
	Workers int
	// Attempt bounds one attempt of one job.
	Attempt time.Duration
	// Grace is how long Run goes on after its context has ended, to get done
	// what is left; each job that is left gets at least one more attempt
	// within it.
	Grace time.Duration
}

// Job does something once. It must be idempotent: an error makes it run again.
type Job func(ctx context.Context) error

// task is a Job with an identity, so that the success of one is not taken for
// that of the job which has replaced it meanwhile.
type task struct{ run Job }

// Queue runs jobs until each has succeeded. A key has at most one job, which
// never runs twice at once. Safe for concurrent use. Its memory is bounded by
// the number of keys whose job has not succeeded.
type Queue struct {
	cfg   Config
	log   *zap.Logger
	queue workqueue.TypedRateLimitingInterface[string]

	mu sync.Mutex
	// The fields below are guarded by mu.
	jobs map[string]*task
	idle chan struct{} // closed while jobs is empty
}

// New returns a queue; jobs wait until Run is called, and goroutines of the
// queue's own end with Run.
func New(cfg Config, log *zap.Logger) *Queue {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstPause, longestPause)
	q := &Queue{
		cfg: cfg, log: log.Named(cfg.Name),
		queue: workqueue.NewTypedRateLimitingQueue(limiter),
		jobs:  map[string]*task{},
		idle:  make(chan struct{}),
	}
	close(q.idle)
	return q
}

// Add has the job run soon. It takes the place of a job with the same key that
// has not succeeded yet.
func (q *Queue) Add(key string, job Job) {
	q.mu.Lock()
	if len(q.jobs) == 0 {
		q.idle = make(chan struct{})
	}
	q.jobs[key] = &task{job}
	q.mu.Unlock()
	q.queue.Add(key)
}

// Len is the number of jobs that have not succeeded.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.jobs)
}

// Wait returns when no job is left, or with the context's error.
func (q *Queue) Wait(ctx context.Context) error {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for %s: %w", q.cfg.Name, ctx.Err())
	}
}

// Run works until the context ends and then, for the grace period at most, on
// what is left. It returns after all its workers have; call it once. The error
// says how many jobs were given up.
func (q *Queue) Run(ctx context.Context) error {
	// Attempts outlive ctx by the grace period, so that stopping cuts none.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var workers sync.WaitGroup
	for range max(q.cfg.Workers, 1) {
		workers.Go(func() { q.work(work) })
	}
	<-ctx.Done()
	grace := time.AfterFunc(q.cfg.Grace, cancel)
	defer grace.Stop()
	q.queue.ShutDownWithDrain()
	q.queue.ShutDown() // which also ends the goroutine that counts the pauses
	workers.Wait()
	q.finish(work)
	if n := q.Len(); n > 0 {
		return fmt.Errorf("stop %s: %d jobs were given up", q.cfg.Name, n)
	}
	return nil
}

// finish gives the jobs that were waiting for another attempt a last one, now.
func (q *Queue) finish(ctx context.Context) {
	q.mu.Lock()
	keys := make(chan string, len(q.jobs)) // every key is in it before the workers start
	for k := range q.jobs {
		keys <- k
	}
	q.mu.Unlock()
	close(keys)
	var workers sync.WaitGroup
	for range max(q.cfg.Workers, 1) {
		workers.Go(func() {
			for k := range keys {
				q.attempt(ctx, k)
			}
		})
	}
	workers.Wait()
}

func (q *Queue) work(ctx context.Context) {
	for {
		key, stopped := q.queue.Get()
		if stopped {
			return
		}
		if q.attempt(ctx, key) {
			q.queue.Forget(key)
		} else {
			q.queue.AddRateLimited(key)
		}
		q.queue.Done(key)
	}
}

// attempt runs the key's job once and says whether it needs no further one.
func (q *Queue) attempt(ctx context.Context, key string) bool {
	q.mu.Lock()
	t := q.jobs[key]
	q.mu.Unlock()
	if t == nil {
		return true
	}
	if ctx.Err() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, q.cfg.Attempt)
	defer cancel()
	if err := t.run(ctx); err != nil {
		q.log.Warn("try again later", zap.Int("attempts", q.queue.NumRequeues(key)+1), zap.Error(err))
		return false
	}
	q.remove(key, t)
	return true
}

func (q *Queue) remove(key string, t *task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.jobs[key] != t {
		return
	}
	delete(q.jobs, key)
	if len(q.jobs) == 0 {
		close(q.idle)
	}
}
