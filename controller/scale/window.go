package scale

import "time"

// Window is a sliding maximum of recommendations. It keeps only what can still
// become the maximum, so it costs a few entries however often it is fed. The
// zero value is empty; it is not safe for concurrent use.
type Window struct {
	entries []entry // times ascending, values descending
}

type entry struct {
	at    time.Time
	value int
}

// maxEntries bounds the memory of a window in which recommendations only fall.
const maxEntries = 32

// Add records a recommendation made at now, and drops what is older than length.
// Times must not decrease.
func (w *Window) Add(now time.Time, value int, length time.Duration) {
	w.expire(now, length)
	for n := len(w.entries); n > 0 && w.entries[n-1].value <= value; n = len(w.entries) {
		w.entries = w.entries[:n-1]
	}
	if n := len(w.entries); n == maxEntries {
		// The last but one lives as long as the new one: errs to holding longer.
		w.entries[n-1].at = now
		return
	}
	w.entries = append(w.entries, entry{now, value})
}

// Max is the highest value recorded within length before now; 0 if none.
func (w *Window) Max(now time.Time, length time.Duration) int {
	w.expire(now, length)
	if len(w.entries) == 0 {
		return 0
	}
	return w.entries[0].value
}

// Reset empties the window.
func (w *Window) Reset() { w.entries = nil }

func (w *Window) expire(now time.Time, length time.Duration) {
	i := 0
	for i < len(w.entries) && now.Sub(w.entries[i].at) > length {
		i++
	}
	if i > 0 {
		w.entries = append(w.entries[:0], w.entries[i:]...)
	}
}
