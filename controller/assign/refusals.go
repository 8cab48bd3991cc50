package assign

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"skipper/proto/fn"
)

// After refusalsInRow refusals of one function in a row it backs off for
// firstBackoff, doubling with each further one up to longestBackoff (contract
// section 2).
const (
	refusalsInRow  = 3
	firstBackoff   = time.Second
	longestBackoff = time.Minute
)

// DefaultRefusalsSize is how many functions are remembered: as many as a
// replica must carry (design section 6).
const DefaultRefusalsSize = 10_000

// Verdict says whether a function may have another pod.
type Verdict struct {
	Allowed bool
	// RetryAfter is how long to back off, when not Allowed; 0: wait for Freed.
	RetryAfter time.Duration
	// Freed is closed when asking again makes sense; nil unless the function has
	// as many attempts under way as it may.
	Freed <-chan struct{}
	// InRow is the number of refusals since the last acceptance.
	InRow int
	// Reason of the latest refusal; empty where there was none.
	Reason string
}

// Refusals remembers which functions' pods refuse their assignment, and keeps
// one that nobody has accepted yet from trying many pods at once: refusals in a
// row and attempts under way are together at most refusalsInRow, so that many
// callers at once cost no more pods than one. After an acceptance there is no
// such bound until the next refusal.
//
// It has no clock. Safe for concurrent use. The functions whose last answer is
// longest ago are forgotten when there are too many; one that is forgotten has
// to prove itself anew.
type Refusals struct {
	mu sync.Mutex
	// The fields below are guarded by mu.
	functions *simplelru.LRU[fn.Key, answers]
	attempts  map[fn.Key]*attempts // those under way; bounded by their number
}

// answers are what the function's pods have said; its zero value, where it is
// remembered, is an acceptance.
type answers struct {
	inRow  int
	until  time.Time // no pod before
	reason string
}

type attempts struct {
	n     int
	freed chan struct{} // nil while nobody waits
}

func (a *attempts) wake() {
	if a.freed != nil {
		close(a.freed)
		a.freed = nil
	}
}

// NewRefusals remembers size functions; below 1 means 1.
func NewRefusals(size int) *Refusals {
	l, err := simplelru.NewLRU[fn.Key, answers](max(size, 1), nil)
	if err != nil { // only for a size below 1
		panic(fmt.Sprintf("make refusals: %v", err))
	}
	return &Refusals{functions: l, attempts: map[fn.Key]*attempts{}}
}

// Begin asks for leave to try a pod for the function at now. Who gets it calls
// End once, whatever came of it. When a back-off has just ended, only the first
// to ask gets leave; the others wait for as long again, or until that pod has
// accepted.
func (r *Refusals) Begin(k fn.Key, now time.Time) Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, known := r.functions.Peek(k)
	a := r.attempts[k]
	v := Verdict{InRow: s.inRow, Reason: s.reason}
	switch {
	case now.Before(s.until):
		v.RetryAfter = s.until.Sub(now)
	case a != nil && a.n >= mostAttempts(s, known):
		v.Freed = a.wait()
	default:
		v.Allowed = true
		r.beginLocked(k, a)
		if d := backoffAfter(s.inRow); d > 0 {
			s.until = now.Add(d)
			r.functions.Add(k, s)
		}
	}
	return v
}

// mostAttempts is how many attempts a function may have under way.
func mostAttempts(s answers, known bool) int {
	if known && s.inRow == 0 {
		return math.MaxInt
	}
	return max(1, refusalsInRow-s.inRow)
}

func (r *Refusals) beginLocked(k fn.Key, a *attempts) {
	if a == nil {
		a = &attempts{}
		r.attempts[k] = a
	}
	a.n++
}

func (a *attempts) wait() <-chan struct{} {
	if a.freed == nil {
		a.freed = make(chan struct{})
	}
	return a.freed
}

// End says that an attempt is over.
func (r *Refusals) End(k fn.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.attempts[k]
	if a == nil {
		return
	}
	a.wake()
	if a.n--; a.n == 0 {
		delete(r.attempts, k)
	}
}

// Refused records a refusal at now and returns what it leads to.
func (r *Refusals) Refused(k fn.Key, reason string, now time.Time) Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, _ := r.functions.Peek(k)
	s.inRow++
	s.reason = reason
	d := backoffAfter(s.inRow)
	if until := now.Add(d); d > 0 && until.After(s.until) {
		s.until = until
	}
	r.functions.Add(k, s)
	return Verdict{Allowed: d == 0, RetryAfter: d, InRow: s.inRow, Reason: reason}
}

// Accepted ends the row.
func (r *Refusals) Accepted(k fn.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.functions.Add(k, answers{})
	if a := r.attempts[k]; a != nil {
		a.wake()
	}
}

// backoffAfter is how long a function rests after so many refusals in a row.
func backoffAfter(inRow int) time.Duration {
	if inRow < refusalsInRow {
		return 0
	}
	d := firstBackoff
	for range min(inRow-refusalsInRow, 16) {
		d = min(2*d, longestBackoff)
	}
	return d
}
