package stream

import (
	"slices"
	"sync"
	"time"

	"skipper/extproc/header"
	"skipper/extproc/pass"
	"skipper/extproc/table"
	"skipper/extproc/wire"
)

// request is an HTTP request that was sent to an instance. Its first stream owns
// it and ends it; streams of later passes find it in the register. Whatever the
// number of passes, it holds one lease at most.
type request struct {
	// Fixed before the request is registered.
	id       [wire.RequestIDLen]byte
	function *header.Function // nil: the stream sent no request to an instance
	start    time.Time
	patience time.Duration // from start on

	next *request // the register's

	mu   sync.Mutex
	over bool
	// named says that the controller named the instance, in place of the table.
	named bool
	lease table.Lease
	// more is nil until there is a second pass.
	more *passes
}

// passes is what is noted from the second pass on.
type passes struct {
	used  int // how often the request was sent to an instance
	tried []*table.Instance
	// unknown is how often in a row Envoy did not know the present instance.
	unknown int
	// asked says that the last pass is not answered with an instance yet.
	asked bool
	since time.Time // when the lease was taken, if that was after the first pass
	over  chan struct{}
}

func (r *request) deadline() time.Time { return r.start.Add(r.patience) }

// begin notes that Envoy asks again and returns what the decision depends on, but
// for what the table knows. The instance that failed is blamed, once for each
// time that it was answered. dropped is the lease of a oneshot's pod that failed:
// nobody may use it any more.
func (r *request) begin(cause pass.Cause) (n notes, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return notes{}, false
	}
	if r.more == nil {
		r.more = &passes{used: 1, over: make(chan struct{})}
	}
	m := r.more
	n.present = r.lease.Instance
	if fresh := !m.asked && n.present != nil; fresh && cause == pass.Failed {
		n.blamed = n.present
		m.tried = append(m.tried, n.present)
		if r.function.Key.Oneshot {
			n.dropped, r.lease = r.lease, table.Lease{}
		}
	} else if fresh {
		m.unknown++
	}
	m.asked = true
	n.used, n.unknown, n.tried, n.over = m.used, m.unknown, slices.Clone(m.tried), m.over
	return n, true
}

// notes are a copy of what is known of a request when Envoy asks again.
type notes struct {
	present, blamed *table.Instance
	dropped         table.Lease
	used, unknown   int
	tried           []*table.Instance
	over            <-chan struct{} // closed when the request is over
}

// usable reports whether the instance that the request has may still be used:
// the pod of a oneshot always, others while the table offers them, or where it
// must not be used, if the controller had named them.
func (r *request) usable(stale bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.lease.Instance == nil:
		return false
	case r.function.Key.Oneshot:
		return true
	case stale:
		return r.named
	}
	return r.lease.Usable()
}

// stay begins one more pass to the same instance; false if the request is over.
func (r *request) stay() (table.Lease, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.lease.Instance == nil {
		return table.Lease{}, false
	}
	r.more.used++
	r.more.asked = false
	return r.lease, true
}

// move begins one more pass, to the instance of g, and returns the lease that is
// to be given back: the one before, or g's where the request is over.
func (r *request) move(g grant, now time.Time) (back table.Lease, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return g.lease, false
	}
	back, r.lease, r.named = r.lease, g.lease, g.named
	m := r.more
	m.used++
	m.asked, m.unknown, m.since = false, 0, now
	return back, true
}

// ending is what the end of a request leaves behind.
type ending struct {
	lease table.Lease
	// sent is when the request was sent to the instance of the lease; zero if it
	// did not arrive there, as far as is known.
	sent time.Time
	// used is how many passes it had, 0 if there was one only.
	used int
}

func (r *request) end() ending {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	e := ending{lease: r.lease, sent: r.start}
	r.lease = table.Lease{}
	m := r.more
	if m == nil {
		return e
	}
	close(m.over)
	e.used = m.used
	switch {
	case m.asked:
		e.sent = time.Time{}
	case !m.since.IsZero():
		e.sent = m.since
	}
	return e
}
