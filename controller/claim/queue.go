package claim

import (
	"container/list"
	"time"

	"skipper/controller/pool"
)

// poolKey names a pool.
type poolKey struct{ namespace, deployment string }

// queue is one pool's line of waiting callers and its reservations. The
// Claimer's mutex guards it.
type queue struct {
	waiting  list.List // of *ticket, by number
	reserved map[string]struct{}
	avoided  map[string]avoidance // by UID

	// next are the best pods of the latest ranking that have not been looked at
	// since, the best in front; what they have become must be asked anew.
	next     []*pool.Pod
	rankedAt time.Time
}

// avoidance keeps a pod that could not be claimed from being tried again before
// the informer has shown what happened to it.
type avoidance struct {
	version uint64 // the pod is worth another try once it shows a later one
	until   time.Time
	why     string
}

// ticket is one caller's place in the line. It keeps its number for all its
// tries, so that a lost race does not send a caller to the end.
type ticket struct {
	number uint64
	grant  chan *pool.Pod // 1: room for the one grant that a waiting ticket gets
	place  *list.Element  // nil while not waiting
}

func newQueue() *queue {
	return &queue{reserved: map[string]struct{}{}, avoided: map[string]avoidance{}}
}

// join puts the ticket where its number belongs; nearly always at the end.
func (q *queue) join(t *ticket) {
	for e := q.waiting.Back(); e != nil; e = e.Prev() {
		if e.Value.(*ticket).number < t.number {
			t.place = q.waiting.InsertAfter(t, e)
			return
		}
	}
	t.place = q.waiting.PushFront(t)
}

func (q *queue) leave(t *ticket) {
	if t.place != nil {
		q.waiting.Remove(t.place)
		t.place = nil
	}
}

// grant reserves the pod for the first in line.
func (q *queue) grant(p *pool.Pod) {
	t := q.waiting.Front().Value.(*ticket)
	q.leave(t)
	q.reserved[p.UID] = struct{}{}
	t.grant <- p
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
	return q.waiting.Len() == 0 && len(q.reserved) == 0 && len(q.avoided) == 0
}

// expire forgets avoidances that are over.
func (q *queue) expire(now time.Time) {
	for uid, a := range q.avoided {
		if !now.Before(a.until) {
			delete(q.avoided, uid)
		}
	}
}
