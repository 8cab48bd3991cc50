package claim

import (
	"time"

	"skipper/controller/limit"
	"skipper/controller/pool"
	"skipper/proto/fn"
)

// handOutLocked gives the pod to the caller whose turn it is. False means that
// no waiting tenant may have it.
func (c *Claimer) handOutLocked(k poolKey, q *queue, p *pool.Pod, now time.Time) bool {
	for {
		t := q.lines.next(func(t *ticket) error { return c.mayTake(k, q, t.tenant) })
		if t == nil {
			return false
		}
		// A call that lost its race has been counted already.
		if t.tries == 0 {
			if err := c.cfg.Tenants.Take(t.tenant, now); err != nil {
				t.grant <- grant{err: err}
				continue
			}
		}
		q.give(t, p)
		return true
	}
}

// mayTake keeps the pool's reserve.
func (c *Claimer) mayTake(k poolKey, q *queue, tenant string) error {
	if c.cfg.Reserve == 0 {
		return nil
	}
	held := q.pending(tenant)
	for _, oneshot := range []bool{false, true} {
		held += len(c.cfg.View.Instances(fn.Key{Namespace: k.namespace, Deployment: k.deployment, Tenant: tenant, Oneshot: oneshot}))
	}
	return limit.Reserve(c.cfg.Reserve, limit.Pool{Free: q.free, Size: q.size, Held: held})
}

// sizeOf is how many pods the pool is meant to have.
func (c *Claimer) sizeOf(k poolKey) int {
	n := 0
	for _, r := range c.cfg.View.ReplicaSets(k.namespace, k.deployment) {
		n += int(r.Replicas)
	}
	return n
}

// countedPods are UIDs of pods that this replica has claimed and counted, until
// the View has shown the claim; or the pod's end, where it had shown the claim
// before the API server's reply was there.
type countedPods map[string]struct{}

// done forgets the pod; it tells whether it was counted.
func (c countedPods) done(uid string) bool {
	_, ok := c[uid]
	delete(c, uid)
	return ok
}

// countOwn notes a claim of ours before the View shows it.
func (c *Claimer) countOwn(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counted[uid] = struct{}{}
}

// isOurs tells whether the pod is being claimed by this replica: whoever won,
// it has been counted, or its caller tries another pod and is.
func (c *Claimer) isOurs(e pool.Event) bool {
	q := c.queues[poolKey{e.New.Namespace, e.New.Deployment}]
	if q == nil {
		return false
	}
	_, ours := q.reserved[e.New.UID]
	return ours
}

// claimedNow tells whether the event shows a claim that the minute still counts.
func claimedNow(e pool.Event, now time.Time) bool {
	return e.New != nil && e.New.Tenant != "" && (e.Old == nil || e.Old.Tenant == "") &&
		now.Sub(e.New.AssignedAt) < time.Minute
}
