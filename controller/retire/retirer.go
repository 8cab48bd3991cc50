package retire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"skipper/controller/internal/retry"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// ErrNotTheFunctions is returned for a pod that no longer is what the caller
// thinks: another function's, or nobody's.
var ErrNotTheFunctions = errors.New("pod does not belong to the function")

const (
	// interval between looks at pods on their way out.
	interval = time.Second
	// attemptTimeout bounds one write.
	attemptTimeout = 10 * time.Second
	// workers write at once.
	workers = 8
)

// Config of a Retirer. All fields are required unless marked optional.
type Config struct {
	Pods      corev1client.PodsGetter
	View      *pool.View
	Functions *pool.Parser
	Limits    Limits
	// Progress tells how far the drain of a pod is. It must be quick. Optional:
	// nil means that nothing is known, so that every drain lasts until its
	// timeout.
	Progress func(pool.Pod) Progress
	// Frozen says that the View may be out of date, so that nothing is decided.
	// Optional: nil means never.
	Frozen func() bool
	// Unreadable is how long a claimed pod is left alone at least whose function
	// cannot be told; see pool.Pod.Problem. From then on it is deleted as a
	// draining one is, when it is empty or the drain's timeout has passed.
	Unreadable time.Duration
	// Responsible says whether this replica ends the drains of the function.
	// Optional: nil means of all. It must be quick.
	Responsible func(fn.Key) bool
	// Event is told what an operator may want to read later. Optional. It must
	// be quick.
	Event func(*skipperpb.Event)
	// Grace is how long Run goes on, after its context has ended, to get
	// deletions done.
	Grace      time.Duration
	Registerer prometheus.Registerer
	Log        *zap.Logger
}

// Retirer drains and deletes pods. Safe for concurrent use.
type Retirer struct {
	cfg     Config
	log     *zap.Logger
	queue   *retry.Queue
	deleted *prometheus.CounterVec
	drains  *prometheus.CounterVec // that have ended

	mu         sync.Mutex
	unreadable map[string]unreadable // by UID; guarded by mu
}

// New returns a Retirer; deletions that are left to the background wait until
// Run is called.
func New(cfg Config) *Retirer {
	if cfg.Progress == nil {
		cfg.Progress = func(pool.Pod) Progress { return Progress{} }
	}
	if cfg.Frozen == nil {
		cfg.Frozen = func() bool { return false }
	}
	if cfg.Responsible == nil {
		cfg.Responsible = func(fn.Key) bool { return true }
	}
	log := cfg.Log.Named("retire")
	r := &Retirer{
		cfg: cfg, log: log, unreadable: map[string]unreadable{},
		queue: retry.New(retry.Config{Name: "writes", Workers: workers, Attempt: attemptTimeout, Grace: cfg.Grace}, log),
		deleted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_retirements_total",
			Help: "Pods taken out of service by step: draining began, or deleted.",
		}, []string{"step"}),
		drains: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_drains_total",
			Help: "Drains that this replica has ended, by outcome: empty, or timeout (--drain-timeout has passed, requests in progress were cut if there were any).",
		}, []string{"outcome"}),
	}
	r.initialise()
	cfg.Registerer.MustRegister(r.deleted, r.drains, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "skipper_controller_unreadable_pods",
		Help: "Claimed pods whose function cannot be told from their labels and annotations; they serve nobody and are deleted in the end. The log names them.",
	}, r.countUnreadable))
	return r
}

// Run ends drains and deletes dead claimed pods until the context ends, and
// then gets done what is left, for the grace period at most.
func (r *Retirer) Run(ctx context.Context) error {
	defer r.cfg.View.Listen(r.observe)()
	var sweeps sync.WaitGroup
	sweeps.Go(func() { r.sweepUntil(ctx) })
	defer sweeps.Wait()
	return r.queue.Run(ctx)
}

func (r *Retirer) sweepUntil(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			r.sweep(now)
		}
	}
}

func (r *Retirer) sweep(now time.Time) {
	if r.cfg.Frozen() {
		return
	}
	r.sweepUnreadable(now)
	for _, p := range r.cfg.View.Retiring() {
		if !r.cfg.Responsible(p.Key) {
			continue
		}
		switch d := Next(p, r.cfg.Progress(p), now, r.cfg.Limits); d.Action {
		case Delete:
			r.drainEnded(p, d)
			r.DeleteSoon(p, d.Reason)
		case Annotate:
			r.queue.Add(p.UID, func(ctx context.Context) error { return r.annotate(ctx, p, time.Now(), d.Reason) })
		}
	}
}

// Drain takes the pod out of routing at once and writes since when, so that
// the drain survives this process. Run deletes the pod when it is empty. A pod
// that is draining, being deleted or gone already is a success; one that is no
// longer p.Key's is left alone with ErrNotTheFunctions. After another error
// the pod is still in routing. Where it is unknown whether the drain was
// written, it is a success too: the background goes on trying, because a pod
// that may be draining to others must not come back here.
func (r *Retirer) Drain(ctx context.Context, p pool.Pod, reason string) error {
	now, known, err := r.current(p)
	if err != nil || !known || now.State() >= pool.Draining {
		return err
	}
	at := time.Now()
	r.cfg.View.ExpectDraining(p.UID, at)
	err = r.annotate(ctx, p, at, reason)
	switch {
	case err == nil:
		return nil
	case refused(err):
		r.cfg.View.ForgetDraining(p.UID)
		return err
	}
	r.log.Warn("drain goes on in the background: its outcome is unknown", zap.String("pod", p.Namespace+"/"+p.Name), zap.String("uid", p.UID), zap.Error(err))
	r.annotateSoon(p, at, reason)
	return nil
}

// DrainSoon is Drain without waiting: the background tries until it is written.
// It is for a pod that should serve nobody, where another replica may know
// better.
func (r *Retirer) DrainSoon(p pool.Pod, reason string) {
	now, known, err := r.current(p)
	switch {
	case err != nil:
		r.leftAlone(p, err)
	case known && now.State() < pool.Draining:
		at := time.Now()
		r.cfg.View.ExpectDraining(p.UID, at)
		r.annotateSoon(p, at, reason)
	}
}

func (r *Retirer) annotateSoon(p pool.Pod, at time.Time, reason string) {
	r.queue.Add(p.UID, func(ctx context.Context) error { return r.annotateOrGiveUp(ctx, p, at, reason) })
}

func (r *Retirer) leftAlone(p pool.Pod, why error) {
	r.log.Warn("pod left alone", zap.String("pod", p.Namespace+"/"+p.Name), zap.String("uid", p.UID), zap.Error(why))
}

// annotateOrGiveUp is annotate for the background. A refusal ends it: whatever
// an earlier attempt wrote is shown by the informer.
func (r *Retirer) annotateOrGiveUp(ctx context.Context, p pool.Pod, at time.Time, reason string) error {
	err := r.annotate(ctx, p, at, reason)
	if err == nil || !refused(err) {
		return err
	}
	r.cfg.View.ForgetDraining(p.UID)
	r.log.Warn("drain given up", zap.String("pod", p.Namespace+"/"+p.Name), zap.String("uid", p.UID), zap.Error(err))
	return nil
}

// refused says that the API server has certainly not written what it was asked
// to: it has answered, and the fault was the request's.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}

// annotate writes draining-at. A pod that is gone or no longer the tenant's
// needs none.
func (r *Retirer) annotate(ctx context.Context, p pool.Pod, at time.Time, reason string) error {
	patch := pool.AnnotationPatch(p, [2]string{pool.AnnotationDrainingAt, pool.FormatTime(at)})
	reply, err := r.cfg.Pods.Pods(p.Namespace).Patch(ctx, p.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		r.cfg.View.ExpectDeleted(p.UID)
		return nil
	case err != nil:
		return fmt.Errorf("patch pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	r.cfg.View.ExpectWritten(pool.FromPod(reply, r.cfg.Functions))
	r.deleted.WithLabelValues("drain").Inc()
	r.logged("pod drains", p, reason)
	r.tell(p, skipperpb.EventType_EVENT_TYPE_POD_DRAINING, skipperpb.EventSeverity_EVENT_SEVERITY_INFO, "gets no new requests: "+reason)
	return nil
}

// Delete deletes the pod: out of routing at once, and to the end. It returns
// when the API server has accepted that, or has the background go on trying
// and returns the first error. A pod that is gone already is a success; one
// that is no longer p.Key's is left alone with ErrNotTheFunctions.
func (r *Retirer) Delete(ctx context.Context, p pool.Pod, reason string) error {
	if _, known, err := r.current(p); err != nil || !known {
		return err
	}
	r.cfg.View.ExpectDeleted(p.UID)
	err := r.remove(ctx, p, reason)
	if err != nil {
		r.queue.Add(p.UID, func(ctx context.Context) error { return r.remove(ctx, p, reason) })
	}
	return err
}

// DeleteSoon is Delete without waiting: the background tries until the pod is
// gone. Unlike Delete it also takes pods that the View does not know.
func (r *Retirer) DeleteSoon(p pool.Pod, reason string) {
	if _, _, err := r.current(p); err != nil {
		r.leftAlone(p, err)
		return
	}
	r.cfg.View.ExpectDeleted(p.UID)
	r.queue.Add(p.UID, func(ctx context.Context) error { return r.remove(ctx, p, reason) })
}

// Wait returns when all deletions have been done, or with the context's error.
func (r *Retirer) Wait(ctx context.Context) error { return r.queue.Wait(ctx) }

// current is the pod as the View has it; not known means gone.
func (r *Retirer) current(p pool.Pod) (now pool.Pod, known bool, err error) {
	now, known = r.cfg.View.Pod(p.UID)
	if known && (now.Key != p.Key || now.Namespace != p.Namespace || now.Name != p.Name || !now.Marked) {
		return now, true, fmt.Errorf("pod %s/%s is %s's, not %s's: %w", p.Namespace, p.Name, now.Key, p.Key, ErrNotTheFunctions)
	}
	return now, known, nil
}

func (r *Retirer) remove(ctx context.Context, p pool.Pod, reason string) error {
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(p.UID)}
	err := r.cfg.Pods.Pods(p.Namespace).Delete(ctx, p.Name, options)
	// A conflict is the precondition's: the name belongs to another pod now.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	r.deleted.WithLabelValues("delete").Inc()
	r.logged("pod deleted", p, reason)
	r.tell(p, skipperpb.EventType_EVENT_TYPE_POD_DELETED, skipperpb.EventSeverity_EVENT_SEVERITY_INFO, "deleted: "+reason)
	return nil
}

func (r *Retirer) logged(what string, p pool.Pod, reason string) {
	r.log.Info(what, zap.String("pod", p.Namespace+"/"+p.Name), zap.String("uid", p.UID),
		zap.Stringer("function", p.Key), zap.String("reason", reason))
}
