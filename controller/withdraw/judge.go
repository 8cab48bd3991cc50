package withdraw

import (
	"cmp"
	"slices"
	"time"

	"skipper/controller/fence"
	"skipper/controller/pool"
)

// blocked is a free pod that may not be claimed at its address yet.
type blocked struct {
	pod   *pool.Pod
	since time.Time
	cause string
	said  bool // in the log
}

// unseen are the withdrawals that only others have seen yet.
func (b *book) unseen() []*record {
	var out []*record
	for _, r := range b.unlisted {
		if !r.seen {
			out = append(out, r)
		}
	}
	for _, r := range b.records {
		if !r.seen && r.listed {
			out = append(out, r)
		}
	}
	return out
}

// pass notes that the own view shows the pod gone, at a version at which that is
// final. It returns whether the function's list has to be published again, so
// that subscribers which heard of the pod elsewhere hear of its end.
func (b *book) pass(r *record, present bool) (publish bool) {
	b.see(r)
	r.present = present
	b.changed = true
	return !r.listed
}

// settledOf keeps, of each list, what comes before the first generation that
// waits for somebody.
func settledOf(all []unacknowledged, waits func(unacknowledged) bool) []unacknowledged {
	slices.SortFunc(all, func(x, y unacknowledged) int {
		return cmp.Or(cmp.Compare(x.name, y.name), cmp.Compare(x.generation, y.generation))
	})
	var out []unacknowledged
	stopped := ""
	for _, u := range all {
		switch {
		case u.name == stopped:
		case waits(u):
			stopped = u.name // whoever has not acknowledged this has not what followed
		default:
			out = append(out, u)
		}
	}
	return out
}

// unacknowledged is a list whose acknowledgement is waited for.
type unacknowledged struct {
	uid, name  string
	generation uint64
}

func (b *book) unacknowledged() []unacknowledged {
	var out []unacknowledged
	for _, r := range b.records {
		if r.listed && !r.acked {
			out = append(out, unacknowledged{r.uid, r.name, r.generation})
		}
	}
	return out
}

// acknowledge notes that no connected subscriber is behind it.
func (b *book) acknowledge(u unacknowledged) {
	if r := b.records[u.uid]; r != nil && r.listed && r.generation == u.generation {
		r.acked = true
		b.changed = true
	}
}

// advance closes what can be closed. It returns the pods that may be claimed
// from now on, and those that everybody is known to have heard of only now.
func (b *book) advance(now time.Time) (free, told []string) {
	b.expire(now)
	for uid, r := range b.records {
		if !r.closed && b.close(r, now) {
			told = append(told, uid)
		}
	}
	for uid, held := range b.blocked {
		if b.decide(held.pod, now).Allowed {
			delete(b.blocked, uid)
			free = append(free, uid)
		}
	}
	return free, told
}

// close closes the record if it can be. It returns whether all are known to have
// heard of the pod only now.
func (b *book) close(r *record, now time.Time) (told bool) {
	at := b.stage(r)
	if at >= heard && !r.final {
		r.finish()
		b.changed = true
		at = b.stage(r)
		told = r.heardAt.IsZero()
		if told {
			r.heardAt = now
		}
	}
	if at == handled && r.final {
		r.closed, r.closedAt = true, now
		b.changed = true
	}
	return told
}

// forget drops what neither this replica nor another has a use for.
func (b *book) forget(now time.Time) {
	for _, r := range b.records {
		if b.forgettable(r, now) {
			b.drop(r)
		}
	}
}

// stage is how far all replicas are: as far as the last.
func (b *book) stage(r *record) stage {
	at := r.stage()
	for _, ip := range b.members {
		at = min(at, r.done[ip])
	}
	return at
}

func (b *book) forgettable(r *record, now time.Time) bool {
	for _, p := range b.peers {
		if p.asks[r.uid] {
			return false
		}
	}
	if !r.seen && !r.listed {
		return now.Sub(r.since) >= underWay // adopted, and whoever asked has stopped
	}
	if !r.closed || now.Sub(r.closedAt) < lingers {
		return false
	}
	return !r.present
}

// allowed decides about a free pod, and remembers one that it refuses, so that
// advance tells when it no longer would.
func (b *book) allowed(p *pool.Pod, now time.Time) fence.Decision {
	d := b.decide(p, now)
	if d.Allowed || p.Addr() == "" {
		return d
	}
	if b.blocked[p.UID] == nil {
		b.blocked[p.UID] = &blocked{pod: p, since: now, cause: d.Cause}
	}
	return d
}

func (b *book) decide(p *pool.Pod, now time.Time) fence.Decision {
	addr := p.Addr()
	s := b.sites[addr]
	complete := b.complete(now) || (b.read && len(b.lost) == 0)
	if complete && s.isOnly(p.UID) {
		return fence.Decision{Allowed: true} // as Decide would, but for thousands of pods at once
	}
	q := fence.Question{
		UID: p.UID, Namespace: p.Namespace, Addr: addr, StartedAt: p.StartedAt,
		Complete: complete, Owners: s.listed(), Withdrawn: s.withdrawn(now),
	}
	switch {
	case complete:
	case !b.read:
		q.Away = "some extproc"
	default:
		q.Away, q.LastInStep = b.longestAway()
	}
	return fence.Decide(q)
}

// longestAway is the subscriber that has been away for longest, of those that
// may know more than this replica.
func (b *book) longestAway() (node string, since time.Time) {
	for n, l := range b.lost {
		if l.acked == nil && (node == "" || l.inStep.Before(since) || (l.inStep.Equal(since) && n < node)) {
			node, since = n, l.inStep
		}
	}
	return node, since
}

// isOnly says that nobody else has, or had, the address.
func (s *site) isOnly(uid string) bool {
	if s == nil {
		return true
	}
	_, owns := s.owners[uid]
	return len(s.records) == 0 && (len(s.owners) == 0 || (len(s.owners) == 1 && owns))
}

// listed is nil for an address that nobody has.
func (s *site) listed() []fence.Owner {
	if s == nil {
		return nil
	}
	out := make([]fence.Owner, 0, len(s.owners))
	for uid, o := range s.owners {
		out = append(out, fence.Owner{UID: uid, Namespace: o.namespace, Claimed: o.claimed})
	}
	slices.SortFunc(out, func(x, y fence.Owner) int { return cmp.Compare(x.UID, y.UID) })
	return out
}

// withdrawn are the former owners whom requests may still be on their way to.
func (s *site) withdrawn(now time.Time) []string {
	if s == nil {
		return nil
	}
	var out []string
	for uid, r := range s.records {
		if !r.closed || now.Sub(r.closedAt) < underWay {
			out = append(out, uid)
		}
	}
	slices.Sort(out)
	return out
}
