package supervise

import (
	"cmp"
	"slices"
	"time"

	"skipper/controller/pool"
)

// active are the instances that are not draining.
func active(instances []pool.Pod) []pool.Pod {
	out := make([]pool.Pod, 0, len(instances))
	for _, p := range instances {
		if p.State() != pool.Draining {
			out = append(out, p)
		}
	}
	return out
}

// countedLocked parts the instances that do not drain: those that count towards
// the desired number, and those whose replacement counts in their place.
func (sup *supervisor) countedLocked(instances []pool.Pod) (counted, leaving []pool.Pod) {
	counted = active(instances)
	if len(sup.replacing) == 0 {
		return counted, nil
	}
	all := counted
	counted = counted[:0]
	for _, p := range all {
		if _, ok := sup.replacing[p.UID]; ok {
			leaving = append(leaving, p)
		} else {
			counted = append(counted, p)
		}
	}
	return counted, leaving
}

// forgotten are the instances whose container restarted after they accepted.
func forgotten(instances []pool.Pod) []pool.Pod {
	var out []pool.Pod
	for _, p := range instances {
		if p.Forgotten && p.State() == pool.Assigned {
			out = append(out, p)
		}
	}
	return out
}

// stuck are the instances that were assigned, or restarted, at least limit ago
// and still have not accepted. since is when this controller started: it gives what it finds
// the same time.
func stuck(instances []pool.Pod, limit time.Duration, since, now time.Time) []pool.Pod {
	var out []pool.Pod
	for _, p := range instances {
		if p.State() == pool.Assigned && now.Sub(later(credible(waitsSince(p), now), since)) >= limit {
			out = append(out, p)
		}
	}
	return out
}

func waitsSince(p pool.Pod) time.Time {
	if p.Forgotten {
		return later(p.AssignedAt, p.StartedAt)
	}
	return p.AssignedAt
}

// victims are the n instances to drain when there are too many: unready ones
// first, then the oldest, the same on every replica that sees the same pods.
func victims(instances []pool.Pod, n int) []pool.Pod {
	out := slices.Clone(instances)
	slices.SortFunc(out, func(a, b pool.Pod) int {
		return cmp.Or(rank(a)-rank(b), pool.InstanceOrder(a, b))
	})
	return out[:min(max(n, 0), len(out))]
}

// mayDrain is how many of the instances that do not drain may do so, stale ones
// among them, without that fewer are left than are desired.
func mayDrain(present, desired int) int { return max(0, present-desired) }

func rank(p pool.Pod) int {
	if p.Routable() {
		return 1
	}
	return 0
}

// orphans are the oneshot pods that nobody has named for longer than timeout, but
// for those that drain already.
// busy is when each was last named; since is when this controller started.
func orphans(instances []pool.Pod, busy map[string]time.Time, timeout time.Duration, since, now time.Time) []pool.Pod {
	var out []pool.Pod
	for _, p := range instances {
		last := later(later(credible(p.AssignedAt, now), credible(p.ReadyAt, now)), later(busy[p.UID], since))
		if now.Sub(last) > timeout && p.State() < pool.Draining {
			out = append(out, p)
		}
	}
	return out
}

// lastAssigned is when the newest of the instances was claimed; zero: none.
func lastAssigned(instances []pool.Pod, now time.Time) time.Time {
	var last time.Time
	for _, p := range instances {
		last = later(last, credible(p.AssignedAt, now))
	}
	return last
}

// skew is by how much the clock of who wrote a time may be ahead, and some: who
// believes too little deletes what was only just claimed.
const skew = time.Hour

// credible is t, or zero where t is so far in the future that it was edited by
// hand: until then the pod would be spared, whoever uses it.
func credible(t, now time.Time) time.Time {
	if t.Sub(now) > skew {
		return time.Time{}
	}
	return t
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
