package suspect

import (
	"time"

	"skipper/controller/pool"
	"skipper/proto/fn"
)

// verdict is what a look has shown; a label value and a word in the log.
type verdict = string

const (
	gone     verdict = "gone"     // not there any more, or another pod has its name
	ending   verdict = "ending"   // deleted, finished or evicted
	unready  verdict = "unready"  // not to be routed to for another reason
	well     verdict = "well"     // nothing that Kubernetes knows of
	left     verdict = "left"     // out of routing before the look
	unread   verdict = "unread"   // the API server did not answer
	crowded  verdict = "crowded"  // no look: too many are suspected
	instance         = "instance" // failures of the function's own instances
	stranger         = "stranger" // failures of pods that are none of its instances, or no longer
)

// isInstance says that the pod is the function's and not on its way out.
func isInstance(p pool.Pod, key fn.Key) bool {
	if p.Function == nil || p.Key != key {
		return false
	}
	switch p.State() {
	case pool.Assigned, pool.Ready, pool.Draining:
		return true
	case pool.Unassigned, pool.Terminating, pool.Dead:
	}
	return false
}

// judge says what has become of p by what the API server answered.
func judge(p, live pool.Pod, found bool, err error) verdict {
	switch {
	case err != nil:
		return unread
	case !found || live.UID != p.UID:
		return gone
	case live.State() == pool.Terminating || live.State() == pool.Dead:
		return ending
	case p.Routable() && !live.Routable():
		return unready
	}
	return well
}

// record is what is remembered of one suspect.
type record struct {
	failures uint64    // since the last line, within the window
	since    time.Time // when they began
	queued   bool
	looked   time.Time // zero: never
	said     time.Time // when a line was written; zero: never
}

// hear counts n failures; due: the pod is to be looked at, at that time.
func (s *record) hear(n uint32, now time.Time) (at time.Time, due bool) {
	if now.Sub(s.since) >= window {
		s.failures, s.since = 0, now
	}
	s.failures += uint64(n)
	if s.queued {
		return time.Time{}, false
	}
	s.queued = true
	if next := s.looked.Add(pause); next.After(now) {
		return next, true
	}
	return now, true
}

// settle notes a look; say: a line is due, for so many failures. A pod that
// has ended gets its line at once, any other one only if it fails often.
func (s *record) settle(seen verdict, now time.Time) (failures uint64, say bool) {
	s.queued, s.looked = false, now
	ended := seen == gone || seen == ending
	if seen == left || !ended && s.failures < manyFailures || !s.said.IsZero() && now.Sub(s.said) < window {
		return s.failures, false
	}
	failures, s.failures, s.said = s.failures, 0, now
	return failures, true
}

// over says that nothing of the record matters any more.
func (s *record) over(now time.Time) bool {
	return !s.queued && now.Sub(s.looked) >= window
}
