package acquire

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"skipper/controller/assign"
	"skipper/controller/claim"
	"skipper/controller/internal/retry"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// patience is how long a pod may take over its assignment before its silence
// counts as a refusal even though the caller left first: a function that never
// answers must not cost a pod for each impatient caller.
const patience = 10 * time.Second

// claimer takes pods out of pools; *claim.Claimer.
type claimer interface {
	Claim(ctx context.Context, f *skipperpb.Function) (pool.Pod, error)
	Explain(namespace, deployment string, cause error) *claim.WaitError
}

// poster tells a pod its function; *assign.Poster.
type poster interface {
	Assign(ctx context.Context, p pool.Pod, f *skipperpb.Function) error
}

// discarder deletes pods in the background; *retire.Retirer.
type discarder interface {
	DeleteSoon(p pool.Pod, reason string)
}

// Config of an Acquirer; all fields are required.
type Config struct {
	Claimer   claimer
	Poster    poster
	Discarder discarder
	Refusals  *assign.Refusals
	View      *pool.View
	Functions *pool.Parser
	// Pods writes ready-at; the common client will do.
	Pods corev1client.PodsGetter
	// Grace is how long Run goes on, after its context has ended, to get
	// ready-at written.
	Grace time.Duration
	// Stages is where the time of assignments is recorded.
	Stages     *claim.Metrics
	Registerer prometheus.Registerer
	Log        *zap.Logger
}

// Acquirer gets functions their instances. Safe for concurrent use.
type Acquirer struct {
	cfg     Config
	log     *zap.Logger
	metrics *metrics
	writes  *retry.Queue
	running sync.WaitGroup // flights

	mu sync.Mutex
	// The fields below are guarded by mu.
	flights  map[fn.Key]*flight   // those that callers may join
	airborne map[*flight]struct{} // those whose goroutine runs
	awaited  map[fn.Key]*signal
	// inHand counts, by UID, how often a pod is being assigned here.
	inHand    map[string]int
	adoptions map[string]context.CancelFunc // by UID
	stopping  bool                          // no flight and no adoption starts any more
}

// New returns an Acquirer; ready-at is written while Run runs.
func New(cfg Config) *Acquirer {
	log := cfg.Log.Named("acquire")
	return &Acquirer{
		cfg: cfg, log: log,
		metrics:  newMetrics(cfg.Registerer),
		writes:   retry.New(retry.Config{Name: "ready-at", Workers: readyWorkers, Attempt: readyTimeout, Grace: cfg.Grace}, log),
		flights:  map[fn.Key]*flight{},
		airborne: map[*flight]struct{}{},
		awaited:  map[fn.Key]*signal{},
		inHand:   map[string]int{}, adoptions: map[string]context.CancelFunc{},
	}
}

// Run writes ready-at and follows the View until the context ends. Then it
// ends all flights and writes what is left, for the grace period at most. The
// Discarder must run longer, or pods of flights cut short are not deleted.
func (a *Acquirer) Run(ctx context.Context) error {
	defer a.cfg.View.Listen(a.podChanged)()
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var writer sync.WaitGroup
	var err error
	writer.Go(func() { err = a.writes.Run(writing) })
	<-ctx.Done()
	a.groundFlights()
	a.running.Wait()
	stop()
	writer.Wait()
	return err
}

// Wait returns when every accepted assignment is written, or with the
// context's error.
func (a *Acquirer) Wait(ctx context.Context) error { return a.writes.Wait(ctx) }

// Acquire gets f another instance: it claims a pod, has it accept the
// assignment, and returns it as the View shows it then. A pod that refuses is
// deleted and another one taken, until the context ends or the function backs
// off. Of a oneshot, a pod whose caller has left is deleted, so that none
// serves nobody. Errors are *Error. F must be valid and is not changed.
func (a *Acquirer) Acquire(ctx context.Context, f *skipperpb.Function) (pool.Pod, error) {
	p, err := a.acquire(ctx, ctx, f, func(string) {})
	if err == nil && f.GetOneshot() && ctx.Err() != nil {
		a.cfg.Discarder.DeleteSoon(p, "caller of the oneshot left before its pod was ready")
		return pool.Pod{}, unfinished(ctx, "the pod accepted its assignment")
	}
	return p, err
}

// acquire waits for a pod while the first context lasts, and for its answer
// while the second lasts. It says through assigning which pod is being
// assigned, and that none is by "".
func (a *Acquirer) acquire(waiting, answering context.Context, f *skipperpb.Function, assigning func(pod string)) (p pool.Pod, err error) {
	defer func() { a.metrics.acquired(err) }()
	for {
		if v := a.cfg.Refusals.Begin(fn.KeyOf(f), time.Now()); !v.Allowed {
			return pool.Pod{}, rejected(v)
		}
		claimed, err := a.cfg.Claimer.Claim(waiting, f)
		if err != nil {
			return pool.Pod{}, classify(err)
		}
		assigning(claimed.Name)
		if err = waiting.Err(); err == nil {
			p, err = a.assign(answering, claimed, f)
		}
		if err == nil {
			return p, nil
		}
		a.cfg.Discarder.DeleteSoon(claimed, err.Error())
		assigning("")
		if waiting.Err() != nil {
			return pool.Pod{}, unfinished(waiting, "pod "+claimed.Name+" took its assignment")
		}
	}
}

// assign has the claimed pod accept f. An error means that the pod is of no use.
func (a *Acquirer) assign(ctx context.Context, p pool.Pod, f *skipperpb.Function) (pool.Pod, error) {
	a.takeInHand(p.UID)
	defer a.letGo(p.UID)
	start := time.Now()
	err := a.cfg.Poster.Assign(ctx, p, f)
	took := time.Since(start)
	a.cfg.Stages.Stage(claim.StageAssign, took)
	a.metrics.assigned(err)
	if err == nil {
		a.cfg.Refusals.Accepted(p.Key)
		return a.accepted(p)
	}
	if ctx.Err() == nil || took >= patience {
		a.cfg.Refusals.Refused(p.Key, err.Error(), time.Now())
	}
	return pool.Pod{}, err
}

// accepted makes the pod an instance, here at once and in Kubernetes soon.
func (a *Acquirer) accepted(p pool.Pod) (pool.Pod, error) {
	at := time.Now()
	a.cfg.View.ExpectReady(p.UID, p.Restarts, at)
	shown, ok := a.cfg.View.Pod(p.UID)
	if !ok || shown.State() != pool.Ready {
		return pool.Pod{}, errors.New("pod was ended while it took its assignment")
	}
	a.writeReadySoon(p, at)
	return shown, nil
}

// Reassign has a pod accept the assignment it carries once more, for example
// after its container restarted or when ready-at was never written. A *Refusal
// of package assign says that it did not; deleting it is the caller's choice.
func (a *Acquirer) Reassign(ctx context.Context, p pool.Pod) error {
	if p.Function == nil {
		return fmt.Errorf("assign pod %s/%s again: %s", p.Namespace, p.Name, p.Problem)
	}
	if err := a.cfg.Poster.Assign(ctx, p, p.Function); err != nil {
		return err
	}
	_, err := a.accepted(p)
	return err
}
