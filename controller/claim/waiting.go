package claim

import "skipper/controller/pool"

// Waiting is how many callers wait for a pod, by pool; pools that nobody waits
// for are left out.
func (c *Claimer) Waiting() map[pool.Name]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[pool.Name]int{}
	for k, q := range c.queues {
		if q.waiting > 0 {
			out[pool.Name{Namespace: k.namespace, Deployment: k.deployment}] = q.waiting
		}
	}
	return out
}

// Stock counts the pool's unclaimed pods: those that can be claimed as far as
// the pods themselves tell, and the others, with why one of those cannot.
func Stock(unassigned []*pool.Pod) (usable, unusable int, why string) {
	r := Rank(Question{Pods: unassigned})
	return r.Usable, r.Total - r.Usable, r.Why
}
