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
	"skipper/controller/events"
	"skipper/controller/internal/retry"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/tracing"
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

// discarder ends pods in the background; *retire.Retirer.
type discarder interface {
	DeleteSoon(p pool.Pod, reason string)
	DrainSoon(p pool.Pod, reason string)
}

// Config of an Acquirer; all fields are required unless marked optional.
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
	// Event is told what an operator may want to read later. Optional. It must
	// be quick.
	Event func(*skipperpb.Event)
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
	// firstSeen is since when a pod, by UID, is known here to be claimed and not
	// to have accepted.
	firstSeen map[string]time.Time
	stopping  bool // no flight and no adoption starts any more
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
		inHand:   map[string]int{}, adoptions: map[string]context.CancelFunc{}, firstSeen: map[string]time.Time{},
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
	p, err := a.acquire(ctx, ctx, wish{function: f})
	if err == nil && f.GetOneshot() && ctx.Err() != nil {
		a.cfg.Discarder.DeleteSoon(p, "caller of the oneshot left before its pod was ready")
		return pool.Pod{}, unfinished(ctx, "the pod accepted its assignment")
	}
	return p, err
}

// wish is what is to be acquired.
type wish struct {
	function *skipperpb.Function
	// assigning is told which pod is being assigned, and by "" that none is.
	assigning func(pod string)
	// refuses may say why a pod that was claimed will not do; empty: it does.
	// The pod is deleted then, and the wish has failed. Nil takes any.
	refuses func(pool.Pod) string
	// keep has a pod assigned that was claimed in the last moment of the wait.
	keep bool
}

func (w wish) told(pod string) {
	if w.assigning != nil {
		w.assigning(pod)
	}
}

func (w wish) objection(p pool.Pod) string {
	if w.refuses == nil {
		return ""
	}
	return w.refuses(p)
}

// acquire waits for a pod while the first context lasts, and for its answer
// while the second lasts.
func (a *Acquirer) acquire(waiting, answering context.Context, w wish) (p pool.Pod, err error) {
	defer func() { a.metrics.acquired(err) }()
	for again := true; again; {
		if err := a.begin(waiting, w.function); err != nil {
			return pool.Pod{}, err
		}
		p, again, err = a.try(waiting, answering, w)
	}
	return p, err
}

// begin waits for leave to try a pod.
func (a *Acquirer) begin(ctx context.Context, f *skipperpb.Function) error {
	for {
		v := a.cfg.Refusals.Begin(fn.KeyOf(f), time.Now())
		switch {
		case v.Allowed:
			return nil
		case v.Freed == nil:
			return rejected(v)
		}
		select {
		case <-v.Freed:
		case <-ctx.Done():
			return a.stillTrying(ctx, f)
		}
	}
}

// stillTrying is for a caller whose time ran out while others tried: where they
// wait for a pod, that is what it waited for too.
func (a *Acquirer) stillTrying(ctx context.Context, f *skipperpb.Function) *Error {
	e := a.cfg.Claimer.Explain(f.GetNamespace(), f.GetDeployment(), ctx.Err())
	if e.Usable == 0 {
		return classify(e)
	}
	return unfinished(ctx, "the function's first pods took their assignment; until one has, no more are tried")
}

// try is one attempt; it may be made again where the pod is to blame for its failure.
func (a *Acquirer) try(waiting, answering context.Context, w wish) (p pool.Pod, again bool, err error) {
	defer a.cfg.Refusals.End(fn.KeyOf(w.function))
	claimed, err := a.cfg.Claimer.Claim(waiting, w.function)
	if err != nil {
		return pool.Pod{}, false, classify(err)
	}
	if why := w.objection(claimed); why != "" {
		a.discard(answering, claimed, why)
		return pool.Pod{}, false, &Error{Cause: PoolEmpty, Message: "pod " + claimed.Name + " will not do: " + why, Err: errUnfit}
	}
	w.told(claimed.Name)
	if err = waiting.Err(); err == nil || w.keep {
		p, err = a.assign(answering, claimed, w.function)
	} else {
		err = fmt.Errorf("claimed too late for its caller: %w", err)
	}
	if err == nil {
		return p, false, nil
	}
	a.discard(answering, claimed, err.Error())
	w.told("")
	if waiting.Err() != nil {
		return pool.Pod{}, false, unfinished(waiting, "pod "+claimed.Name+" took its assignment")
	}
	return pool.Pod{}, true, nil
}

// discard ends a pod that was claimed here and has not become an instance here.
// Once another replica may have taken it up, it may serve there: if it is known
// to, it is left alone, and else it drains.
func (a *Acquirer) discard(ctx context.Context, p pool.Pod, why string) {
	if a.undisputed(p) {
		a.cfg.Discarder.DeleteSoon(p, why)
		return
	}
	if _, ok := a.acceptedElsewhere(ctx, p); !ok {
		a.cfg.Discarder.DrainSoon(p, why)
	}
}

// undisputed says that nobody else can have had reason yet to take up the
// assignment of a pod that was claimed here, by this clock; see adoptAfter.
func (a *Acquirer) undisputed(p pool.Pod) bool {
	shown, ok := a.cfg.View.Pod(p.UID)
	return (!ok || shown.State() != pool.Draining) && time.Since(p.AssignedAt) < adoptAfter
}

// assign has the claimed pod accept f. An error means that the pod is of no use.
func (a *Acquirer) assign(ctx context.Context, p pool.Pod, f *skipperpb.Function) (pool.Pod, error) {
	a.takeInHand(p.UID)
	defer a.letGo(p.UID)
	start := time.Now()
	ctx, span := tracing.Start(ctx, "assign", tracing.Pod(p.Name, p.UID))
	err := a.cfg.Poster.Assign(ctx, p, f)
	took := time.Since(start)
	tracing.End(span, result(err), err)
	a.cfg.Stages.Stage(claim.StageAssign, took)
	a.metrics.assigned(err)
	if err == nil {
		a.cfg.Refusals.Accepted(p.Key)
		a.tell(p, skipperpb.EventType_EVENT_TYPE_POD_ASSIGNED, skipperpb.EventSeverity_EVENT_SEVERITY_INFO,
			fmt.Sprintf("accepted its assignment to %s after %s", p.Key, took.Round(time.Millisecond)))
		return a.accepted(p)
	}
	if !a.undisputed(p) {
		if shown, ok := a.acceptedElsewhere(ctx, p); ok {
			return shown, nil
		}
	}
	a.tellRefused(ctx, p, err)
	if ctx.Err() == nil || took >= patience {
		a.cfg.Refusals.Refused(p.Key, err.Error(), time.Now())
	}
	return pool.Pod{}, err
}

func (a *Acquirer) tell(p pool.Pod, kind skipperpb.EventType, severity skipperpb.EventSeverity, message string) {
	if a.cfg.Event != nil {
		a.cfg.Event(events.OfPod(p, kind, severity, message))
	}
}

// tellRefused tells of a pod that did not accept, unless it was not given the
// time to.
func (a *Acquirer) tellRefused(ctx context.Context, p pool.Pod, err error) {
	if ctx.Err() == nil {
		a.tell(p, skipperpb.EventType_EVENT_TYPE_ASSIGNMENT_REFUSED, skipperpb.EventSeverity_EVENT_SEVERITY_WARN, err.Error())
	}
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
		if _, ok := a.acceptedElsewhere(ctx, p); ok && p.State() == pool.Assigned { // by who was responsible meanwhile
			return nil
		}
		return err
	}
	_, err := a.accepted(p)
	return err
}
