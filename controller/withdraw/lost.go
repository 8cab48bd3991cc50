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
	away
	// acked has the generations of this replica's lists up to which it has
	// acknowledged them, by resource name. Nil: it may have had any list.
	acked map[string]uint64
	said  bool // in the log
	kept  bool // in the log: another extproc names its Envoy, and is no successor
}

// away is how long a subscriber has been.
type away struct {
	// since is when it was last in touch, at the latest: its table expires from
	// then on.
	since time.Time
	// inStep is when it last had everything, at the earliest.
	inStep time.Time
	// noted is when that became known here: it is back when it was in step with
	// a replica later.
	noted time.Time
	// last is when it is last known to have been there: who began later may be
	// its successor.
	last time.Time
}

// or is what holds whichever of the two is true.
func (a away) or(b away) away {
	if b.since.After(a.since) {
		a.since = b.since
	}
	if b.inStep.Before(a.inStep) {
		a.inStep = b.inStep
	}
	if b.noted.After(a.noted) {
		a.noted = b.noted
	}
	if b.last.After(a.last) {
		a.last = b.last
	}
	return a
}

// addTo notes what the subscriber may still know of the pod. What it has not
// acknowledged it had, and of functions whose list it did not have it may be
// told by GetInstance while it is away.
func (l *lostNode) addTo(r *record, node string) {
	upTo, subscribed := l.acked[r.name]
	switch {
	case r.key.Oneshot: // one request's pod is in no table
	case l.acked == nil:
		r.lost[node] = true
	case !subscribed:
		r.lost[node] = r.lost[node] || false
	case upTo < r.generation:
		r.lost[node] = true
	}
}

// lose notes that a subscriber is away. Acked is nil where another replica, or
// one before this, served it; the pods that except names are known to it as gone.
func (b *book) lose(node string, how away, acked map[string]uint64, except func(*record) bool) {
	if _, bye := b.departed[node]; bye {
		return
	}
	if b.lost[node] == nil && len(b.lost) >= maxLost {
		node, acked = crowd, nil
	}
	l := &lostNode{away: how, acked: acked}
	if before := b.lost[node]; before != nil {
		l.away, l.acked = how.or(before.away), nil
	}
	b.lost[node] = l
	b.changed = true
	for _, r := range b.records {
		if r.listed && !r.closed && (except == nil || !except(r)) {
			l.addTo(r, node)
		}
	}
}

// depart takes in the end of a stream of this replica.
func (b *book) depart(node string, at time.Time, acked map[string]uint64) {
	b.lose(node, away{since: at, inStep: at, noted: at, last: at}, acked, nil)
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
		if l := b.lost[node]; l != nil && l.noted.Before(asOf) {
			b.found(node)
		}
	}
}

// goodbye is the word of a subscriber that it uses no table any more.
func (b *book) goodbye(node string, now time.Time) {
	delete(b.gateways, node)
	if len(b.departed) < maxLost {
		b.departed[node] = now
	}
	b.found(node)
}

// expire forgets those whose tables are used by nobody any more.
func (b *book) expire(now time.Time) {
	for node, l := range b.lost {
		if now.Sub(l.since) > b.staleness {
			delete(b.gateways, node)
			b.found(node)
		}
	}
	for node, g := range b.gateways {
		if b.lost[node] == nil && now.Sub(g.heard) > b.staleness {
			delete(b.gateways, node)
		}
	}
	for node, at := range b.departed {
		if now.Sub(at) > b.staleness {
			delete(b.departed, node)
		}
	}
}
