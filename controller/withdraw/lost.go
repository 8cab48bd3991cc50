package withdraw

import "time"

// maxLost bounds the subscribers that are remembered after they went away; the
// cluster has one for each Envoy. Beyond it they share one entry.
const maxLost = 4096

// crowd is the node of the entry that subscribers beyond maxLost share. Nobody
// comes back under it, so it expires.
const crowd = "other extprocs"

// lostNode is a subscriber that went away without goodbye.
type lostNode struct {
	since time.Time
	// acked has the generations of this replica's lists up to which it has
	// acknowledged them, by resource name; what is not in it, it does not have.
	// Nil: it may have any list, as of any time before since.
	acked map[string]uint64
	said  bool // in the log
}

// mayKnow says that the subscriber may still have the pod in its table.
func (l *lostNode) mayKnow(r *record) bool {
	if r.key.Oneshot {
		return false // one request's pod is in no table
	}
	if l.acked == nil {
		return true
	}
	upTo, subscribed := l.acked[r.name]
	return subscribed && (!r.listed || upTo < r.generation)
}

// lose notes that a subscriber is away. Acked is nil where another replica, or
// one before this, served it; the pods that except names are known to it as gone.
func (b *book) lose(node string, since time.Time, acked map[string]uint64, except func(*record) bool) {
	if _, bye := b.departed[node]; bye || (acked != nil && len(acked) == 0) {
		return
	}
	if b.lost[node] == nil && len(b.lost) >= maxLost {
		node, acked = crowd, nil
	}
	l := &lostNode{since: since, acked: acked}
	if before := b.lost[node]; before != nil {
		l.acked = nil
		if before.since.After(since) {
			l.since = before.since
		}
	}
	b.lost[node] = l
	b.changed = true
	for _, r := range b.records {
		if r.listed && !r.closed && l.mayKnow(r) && (except == nil || !except(r)) {
			r.lost[node] = true
		}
	}
}

// depart takes in the end of a stream of this replica.
func (b *book) depart(node string, at time.Time, acked map[string]uint64) {
	b.lose(node, at, acked, func(r *record) bool { return r.handled() })
}

// found ends the search for a subscriber: it knows all that it has to, or what
// it does not know is waited for elsewhere.
func (b *book) found(node string) {
	if b.lost[node] == nil {
		return
	}
	delete(b.lost, node)
	b.changed = true
	for _, r := range b.records {
		delete(r.lost, node)
	}
}

// inStep finds those that were in step with some replica at the given time.
func (b *book) inStep(all []string, asOf time.Time) {
	for _, node := range all {
		if l := b.lost[node]; l != nil && l.since.Before(asOf) {
			b.found(node)
		}
	}
}

// goodbye is the word of a subscriber that it uses no table any more.
func (b *book) goodbye(node string, now time.Time) {
	if len(b.departed) < maxLost {
		b.departed[node] = now
	}
	b.found(node)
}

// expire forgets those whose tables are used by nobody any more.
func (b *book) expire(now time.Time) {
	for node, l := range b.lost {
		if now.Sub(l.since) > b.staleness {
			b.found(node)
		}
	}
	for node, at := range b.departed {
		if now.Sub(at) > b.staleness {
			delete(b.departed, node)
		}
	}
}
