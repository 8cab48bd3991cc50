package supervise

import "time"

// quiet keeps a log from saying the same in every interval: what is new is said
// at once, what stays the same after pauses that grow. The zero value has said
// nothing yet.
type quiet[T comparable] struct {
	said  T
	at    time.Time // zero: nothing
	pause time.Duration
	kept  int // times that it was not said since
}

// The pauses double from the first to the longest.
const (
	firstPause   = time.Minute
	longestPause = time.Hour
)

// says tells whether to say it now, and how often it was kept back before.
func (q *quiet[T]) says(what T, now time.Time) (kept int, ok bool) {
	switch {
	case q.at.IsZero() || q.said != what:
		*q = quiet[T]{said: what, at: now, pause: firstPause}
		return 0, true
	case now.Sub(q.at) < q.pause:
		q.kept++
		return 0, false
	}
	kept = q.kept
	*q = quiet[T]{said: what, at: now, pause: min(2*q.pause, longestPause)}
	return kept, true
}

// over makes the next one new.
func (q *quiet[T]) over() { *q = quiet[T]{} }
