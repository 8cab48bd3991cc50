package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/tracing"
)

// call is one Claim under way: it reserves and patches until a patch has won.
// One goroutine uses it.
type call struct {
	*Claimer
	pool     poolKey
	function *skipperpb.Function
	ticket   *ticket
	pause    time.Duration
	obstacle string // of the latest try, for the error
}

func (c *Claimer) newCall(f *skipperpb.Function) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickets++
	return &call{
		Claimer: c, function: f, pause: firstPause,
		pool:   poolKey{f.GetNamespace(), f.GetDeployment()},
		ticket: &ticket{tenant: f.GetTenant(), number: c.tickets, grant: make(chan grant, 1)},
	}
}

func (c *call) run(ctx context.Context) (pool.Pod, error) {
	for {
		p, err := c.reserve(ctx)
		if err != nil {
			return pool.Pod{}, err
		}
		claimed, v := c.try(ctx, p)
		c.log.Info("claim", zap.Stringer("outcome", v.Outcome), zap.String("reason", v.Reason),
			zap.String("pod", p.Namespace+"/"+p.Name), zap.String("uid", p.UID), zap.Stringer("function", fn.KeyOf(c.function)))
		switch v.Outcome {
		case Won:
			return claimed, nil
		case Refused:
			return pool.Pod{}, fmt.Errorf("%w: pod %s/%s: %s", ErrRefused, p.Namespace, p.Name, v.Reason)
		case Unclear:
			c.rest(ctx)
		}
		c.obstacle = "pod " + p.Name + ": " + v.Reason
	}
}

// waitError joins what the pool looks like with what stood in the way.
func (c *call) waitError(cause error) error {
	e := c.Explain(c.pool.namespace, c.pool.deployment, cause)
	if c.obstacle != "" {
		e.Why = c.obstacle
	}
	return e
}

func (c *call) limitError(err error) error {
	return fmt.Errorf("claim a pod of %s/%s: %w", c.pool.namespace, c.pool.deployment, err)
}

// rest pauses, longer each time; it ends early with the context.
func (c *call) rest(ctx context.Context) {
	timer := time.NewTimer(c.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	c.pause = min(2*c.pause, longestPause)
}

// reserve waits for a pod of its own; try ends the reservation. Errors are
// those of Claim.
func (c *call) reserve(ctx context.Context) (p *pool.Pod, err error) {
	start := time.Now()
	_, span := tracing.Start(ctx, "wait for pod")
	defer func() { tracing.End(span, came(err), err) }()
	c.cfg.Metrics.waiting.Inc()
	defer c.cfg.Metrics.waiting.Dec()
	if err := ctx.Err(); err != nil {
		return nil, c.waitError(err)
	}
	c.enter()
	select {
	case g := <-c.ticket.grant:
		if g.err != nil {
			return nil, c.limitError(g.err)
		}
		c.cfg.Metrics.Stage(StageWait, time.Since(start))
		return g.pod, nil
	case <-ctx.Done():
		if limited := c.abandon(); limited != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, c.limitError(limited)
		}
		return nil, c.waitError(ctx.Err())
	}
}

// came is the outcome of a wait.
func came(err error) string {
	if err != nil {
		return "none"
	}
	return "reserved"
}

func (c *call) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[c.pool]
	if q == nil {
		q = newQueue()
		c.queues[c.pool] = q
	}
	q.join(c.ticket)
	c.serveLocked(c.pool, q)
}

// abandon leaves the line; a pod that was granted in the same moment goes to
// the next caller. It returns the limit that stood in the way; nil: none.
func (c *call) abandon() (limited error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case g := <-c.ticket.grant:
		limited = g.err
		if g.pod != nil {
			c.giveBackLocked(g.pod)
		}
		return limited
	default:
	}
	q := c.queues[c.pool]
	q.leave(c.ticket)
	c.dropEmptyLocked(q)
	return c.ticket.obstacle
}

// giveBackLocked ends a reservation of which nothing has come.
func (c *call) giveBackLocked(p *pool.Pod) {
	q := c.queues[c.pool]
	delete(q.reserved, p.UID)
	q.rankedAt = time.Time{} // the next ranking will find the pod
	c.serveLocked(c.pool, q)
	c.dropEmptyLocked(q)
}

// try writes the claim, tells the View, and then ends the reservation.
func (c *call) try(ctx context.Context, p *pool.Pod) (pool.Pod, Verdict) {
	ctx, span := tracing.Start(ctx, "claim", tracing.Pod(p.Name, p.UID))
	now := time.Now()
	reply, err := c.patch(ctx, p, now)
	v := Judge(reply, err)
	if v.Outcome == Unclear {
		reply, v = c.clarify(ctx, p, now, v)
	}
	tracing.End(span, v.Outcome.String(), err)
	c.cfg.Metrics.claims.WithLabelValues(v.Outcome.String()).Inc()
	var claimed pool.Pod
	switch v.Outcome {
	case Won, LostDeleting:
		claimed = pool.FromPod(reply, c.cfg.Functions)
		c.countOwn(p.UID)
		c.cfg.View.ExpectWritten(claimed)
	case Gone:
		c.cfg.View.ExpectDeleted(p.UID)
	}
	c.release(p, v)
	return claimed, v
}

func (c *call) release(p *pool.Pod, v Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[c.pool]
	delete(q.reserved, p.UID)
	if v.Outcome != Won {
		q.avoided[p.UID] = avoidance{version: p.Version, until: time.Now().Add(avoidFor), why: v.Reason}
	}
	c.dropEmptyLocked(q)
}

func (c *call) dropEmptyLocked(q *queue) {
	if q.empty() {
		delete(c.queues, c.pool)
	}
}

// patch goes on when the caller leaves, because a patch that was cut off may
// have been written all the same.
func (c *call) patch(ctx context.Context, p *pool.Pod, now time.Time) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patchTimeout)
	defer cancel()
	body := Patch(*p, c.function, now)
	reply, err := c.cfg.Pods.Pods(p.Namespace).Patch(ctx, p.Name, types.JSONPatchType, body, metav1.PatchOptions{})
	c.cfg.Metrics.Stage(StagePatch, time.Since(now))
	if err == nil && reply == nil {
		return nil, errors.New("empty reply")
	}
	return reply, err
}
