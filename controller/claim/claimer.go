package claim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"skipper/controller/limit"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

const (
	// recheck is the safety net behind the events (design section 5).
	recheck = 250 * time.Millisecond
	// patchTimeout bounds one claim patch.
	patchTimeout = 10 * time.Second
	// avoidFor is how long a pod that could not be claimed is left alone,
	// unless the informer shows something new of it: the lag of a slow informer.
	avoidFor = 5 * time.Second
	// rankAhead is how many more pods than needed one ranking finds, and
	// rankingLasts for how long they are taken for the best: a pod of a newer
	// ReplicaSet may be passed over for that long.
	rankAhead    = 64
	rankingLasts = 100 * time.Millisecond
	// The pause after an unclear answer doubles from firstPause to longestPause.
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
)

// Config of a Claimer. All fields are required unless marked optional.
type Config struct {
	// Pods writes the claims; see ClientConfig for why not the common client.
	Pods      corev1client.PodsGetter
	View      *pool.View
	Functions *pool.Parser
	// Spread is read for each decision. Optional: nil means the only replica.
	Spread func() Spread
	// Allowed may keep a usable pod from being claimed, with a reason.
	// Optional. It is called with locks held: it must be quick and must not
	// call the Claimer or the View. Reconsider says when its answers may have
	// changed.
	Allowed func(*pool.Pod) (bool, string)
	// Tenants bounds the claims of each tenant. Optional: nil does not. Claims
	// of other replicas, as the View shows them, are counted too.
	Tenants *limit.Tenants
	// Reserve is the share of a pool that one tenant cannot take; see
	// limit.Reserve. Optional: 0 is none.
	Reserve float64
	Metrics *Metrics
	Log     *zap.Logger
}

// Claimer hands pods of pools to callers. Safe for concurrent use.
type Claimer struct {
	cfg Config
	log *zap.Logger

	mu sync.Mutex
	// The fields below are guarded by mu.
	queues  map[poolKey]*queue
	tickets uint64 // given out so far
	counted countedPods
}

// New returns a Claimer; Run must be running for callers to be woken.
func New(cfg Config) *Claimer {
	if cfg.Spread == nil {
		cfg.Spread = func() Spread { return Spread{} }
	}
	if cfg.Allowed == nil {
		cfg.Allowed = func(*pool.Pod) (bool, string) { return true, "" }
	}
	if cfg.Tenants == nil {
		cfg.Tenants = limit.NewTenants(0, 0)
	}
	return &Claimer{cfg: cfg, log: cfg.Log.Named("claim"), queues: map[poolKey]*queue{}, counted: countedPods{}}
}

// Run wakes waiting callers when pods change, until the context ends.
func (c *Claimer) Run(ctx context.Context) error {
	defer c.cfg.View.Listen(c.podChanged)()
	tick := time.NewTicker(recheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			c.recheck()
		}
	}
}

// podChanged counts claims that others have made, and serves the pod's pool if
// the pod may be claimed now.
func (c *Claimer) podChanged(e pool.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if claimedNow(e, now) && !c.counted.done(e.New.UID) && !c.isOurs(e) {
		c.cfg.Tenants.Saw(e.New.Tenant, now)
	}
	if e.New == nil {
		c.counted.done(e.Old.UID)
	}
	if e.New == nil || Unusable(e.New) != "" {
		return
	}
	k := poolKey{e.New.Namespace, e.New.Deployment}
	if q := c.queues[k]; q != nil {
		c.serveLocked(k, q)
	}
}

// Reconsider serves those who wait, because pods that were not Allowed may be now.
func (c *Claimer) Reconsider() { c.recheck() }

func (c *Claimer) recheck() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for k, q := range c.queues {
		q.expire(now)
		c.serveLocked(k, q)
		if q.empty() {
			delete(c.queues, k)
		}
	}
}

// serveLocked gives the pool's pods, best first, to its waiting callers in
// their order. It ranks the pool only when the latest ranking is used up or old,
// because ranking thousands of pods for each claim would cost more than the claim.
func (c *Claimer) serveLocked(k poolKey, q *queue) {
	now := time.Now()
	if now.Sub(q.rankedAt) > rankingLasts {
		q.next = nil
	}
	ranked := false
	for q.waiting > 0 {
		p := q.pop()
		if p == nil {
			if ranked {
				return
			}
			q.ranked(c.rankLocked(k, q, q.waiting+rankAhead), c.sizeOf(k), now)
			ranked = true
			continue
		}
		current := c.freeLocked(q, p, now)
		if current == nil {
			continue
		}
		if !c.handOutLocked(k, q, current, now) {
			q.next = append([]*pool.Pod{p}, q.next...)
			return
		}
	}
}

// freeLocked is the pod as it is now; nil if it cannot be claimed any more.
func (c *Claimer) freeLocked(q *queue, ranked *pool.Pod, now time.Time) *pool.Pod {
	p, known := c.cfg.View.Pod(ranked.UID)
	if _, taken := q.reserved[ranked.UID]; taken || !known || Unusable(&p) != "" || q.avoids(&p, now) != "" {
		return nil
	}
	if ok, _ := c.cfg.Allowed(&p); !ok {
		return nil
	}
	return &p
}

func (c *Claimer) rankLocked(k poolKey, q *queue, limit int) Ranking {
	now, view := time.Now(), c.cfg.View
	return Rank(Question{
		Pods:        view.Unassigned(k.namespace, k.deployment),
		ReplicaSets: view.ReplicaSets(k.namespace, k.deployment),
		Spread:      c.cfg.Spread(),
		Limit:       limit,
		Now:         time.Now(),
		Allowed: func(p *pool.Pod) (bool, string) {
			if _, taken := q.reserved[p.UID]; taken {
				return false, "it is being claimed"
			}
			if why := q.avoids(p, now); why != "" {
				return false, why
			}
			return c.cfg.Allowed(p)
		},
	})
}

// Explain says what the pool has to offer now, in a WaitError around cause.
func (c *Claimer) Explain(namespace, deployment string, cause error) *WaitError {
	k := poolKey{namespace, deployment}
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[k]
	if q == nil {
		q = newQueue()
	}
	r := c.rankLocked(k, q, 0)
	return &WaitError{Namespace: namespace, Deployment: deployment, Usable: r.Usable, Total: r.Total, Why: r.Why, Err: cause}
}

// Claim takes a pod of f's pool for f, waiting for one until the context ends.
// The pod returned carries the claim already, in the View too; it may be
// returned although the context has just ended, because the claim is written:
// it is the caller's to use or to delete. Errors: ErrDeploymentNotFound,
// ErrFunctionTooLarge, ErrRefused, a *limit.Error, or a *WaitError. F must be
// valid.
func (c *Claimer) Claim(ctx context.Context, f *skipperpb.Function) (pool.Pod, error) {
	if len(fn.Marshal(f)) > fn.MaxJSONBytes {
		return pool.Pod{}, ErrFunctionTooLarge
	}
	if !c.cfg.View.Known(f.GetNamespace(), f.GetDeployment()) {
		return pool.Pod{}, fmt.Errorf("%w: neither a pod nor a ReplicaSet of %s/%s was ever seen: create the Deployment, with label %s in its pod template",
			ErrDeploymentNotFound, f.GetNamespace(), f.GetDeployment(), pool.LabelDeployment)
	}
	if err := c.cfg.Tenants.Check(f.GetTenant(), time.Now()); err != nil {
		return pool.Pod{}, fmt.Errorf("claim a pod of %s/%s: %w", f.GetNamespace(), f.GetDeployment(), err)
	}
	return c.newCall(f).run(ctx)
}
