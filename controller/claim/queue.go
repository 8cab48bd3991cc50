package claim

import (
	"time"

	"skipper/controller/pool"
)

// poolKey names a pool.
type poolKey struct{ namespace, deployment string }

// queue is one pool's waiting callers and its reservations. The Claimer's mutex
// guards it.
type queue struct {
	lines
	reserved map[string]string    // tenants by UID
	avoided  map[string]avoidance // by UID

	// next are the best pods of the latest ranking that have not been looked at
	// since, the best in front; what they have become must be asked anew.
	next     []*pool.Pod
	rankedAt time.Time
	free     int // usable pods at that time, less those granted since
	size     int // pods that the pool is meant to have
}

// avoidance keeps a pod that could not be claimed from being tried again before
// the informer has shown what happened to it.
type avoidance struct {
	version uint64 // the pod is worth another try once it shows a later one
	until   time.Time
	why     string
}

// grant is what a waiting caller is given: a pod, or why it gets none.
type grant struct {
	pod *pool.Pod
	err error
}

func newQueue() *queue {
	return &queue{lines: newLines(), reserved: map[string]string{}, avoided: map[string]avoidance{}}
}

// give reserves the pod for the ticket, which has left its line.
func (q *queue) give(t *ticket, p *pool.Pod) {
	t.tries++
	q.reserved[p.UID] = t.tenant
	q.free--
	t.grant <- grant{pod: p}
}

// ranked takes over a new ranking.
func (q *queue) ranked(r Ranking, size int, now time.Time) {
	q.next, q.free, q.size, q.rankedAt = r.Best, r.Usable, size, now
}

// pop takes the best pod off the latest ranking; nil when it is used up.
func (q *queue) pop() *pool.Pod {
	if len(q.next) == 0 {
		return nil
	}
	p := q.next[0]
	q.next = q.next[1:]
	return p
}

// pending is how many pods are reserved for the tenant.
func (q *queue) pending(tenant string) int {
	n := 0
	for _, t := range q.reserved {
		if t == tenant {
			n++
		}
	}
	return n
}

// avoids says why the pod is not to be tried now; empty where it may be.
func (q *queue) avoids(p *pool.Pod, now time.Time) string {
	a, ok := q.avoided[p.UID]
	if !ok {
		return ""
	}
	if p.Version > a.version || !now.Before(a.until) {
		delete(q.avoided, p.UID)
		return ""
	}
	return a.why
}

// empty says that nothing would be lost by forgetting the queue.
func (q *queue) empty() bool {
	return q.waiting == 0 && len(q.reserved) == 0 && len(q.avoided) == 0
}

// expire forgets avoidances that are over.
func (q *queue) expire(now time.Time) {
	for uid, a := range q.avoided {
		if !now.Before(a.until) {
			delete(q.avoided, uid)
		}
	}
}
