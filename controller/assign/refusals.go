package assign

import (
	"fmt"
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

// DefaultRefusalsSize is how many functions with refusals are remembered: as
// many as a replica must carry (design section 6).
const DefaultRefusalsSize = 10_000

// Verdict says whether a function may have another pod.
type Verdict struct {
	Allowed bool
	// RetryAfter is how long to wait, when not Allowed.
	RetryAfter time.Duration
	// InRow is the number of refusals since the last acceptance.
	InRow int
	// Reason of the latest refusal; empty where there was none.
	Reason string
}

// Refusals remembers which functions' pods refuse their assignment. It has no
// clock. Safe for concurrent use. The functions whose last refusal is longest
// ago are forgotten when there are too many.
type Refusals struct {
	mu sync.Mutex
	// functions is guarded by mu.
	functions *simplelru.LRU[fn.Key, refused]
}

type refused struct {
	inRow  int
	until  time.Time // no pod before
	reason string
}

// NewRefusals remembers size functions; below 1 means 1.
func NewRefusals(size int) *Refusals {
	l, err := simplelru.NewLRU[fn.Key, refused](max(size, 1), nil)
	if err != nil { // only for a size below 1
		panic(fmt.Sprintf("make refusals: %v", err))
	}
	return &Refusals{functions: l}
}

// Begin asks for leave to try a pod for the function at now. When a back-off
// has just ended, only the first to ask gets leave; the others wait for as long
// again, or until that pod has accepted.
func (r *Refusals) Begin(k fn.Key, now time.Time) Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, _ := r.functions.Peek(k)
	v := Verdict{Allowed: !now.Before(s.until), InRow: s.inRow, Reason: s.reason}
	if !v.Allowed {
		v.RetryAfter = s.until.Sub(now)
		return v
	}
	if d := backoffAfter(s.inRow); d > 0 {
		s.until = now.Add(d)
		r.functions.Add(k, s)
	}
	return v
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
	r.functions.Remove(k)
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
