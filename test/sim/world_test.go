package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"
)

// A day is compressed: the settings are the defaults, a third to a tenth as
// long, in about the same proportions. What the code fixes (the interval of
// heartbeats, 3 s until an assignment is taken up, 20 s of notice) is as it is.
const (
	heartbeatTimeout  = 30 * time.Second
	stabilization     = 20 * time.Second
	scaleInterval     = 5 * time.Second
	assignTimeout     = 5 * time.Second
	drainTimeout      = time.Minute
	staleness         = 30 * time.Second
	agreement         = 15 * time.Second
	heartbeatInterval = 5 * time.Second
	holdTimeout       = 10 * time.Second
	podGrace          = 4 * time.Second
	shards            = 16
	maxSkew           = 4 * time.Second // between any two replicas' clocks

	chaosFor    = 70 * time.Second
	steadyFor   = 95 * time.Second  // calm, with traffic, at most
	restingFor  = 150 * time.Second // calm, without, at most
	leaveWithin = 15 * time.Second  // clients that were there before the calm
	lookEvery   = 5 * time.Second   // whether all is as it should be
	enough      = 3                 // such looks, one after the other
)

// violation is one finding: what rule (an invariant's number) was broken, and how.
type violation struct {
	rule string
	text string
}

// world is the cluster and everything around it. The goroutine of the test runs
// its events one after the other; controllers' goroutines call into it.
type world struct {
	seed   uint64
	broken broken
	rnd    *rand.Rand // of the goroutine of the test, as fate is
	fate   *rand.Rand // for what is to happen, the same whatever came of it
	began  time.Time
	wake   chan struct{} // 1: an event was added
	calls  sync.WaitGroup

	functions []*function
	pools     []*deployment
	gateways  []*gateway // that live
	replicas  []*replica // that live
	made      int        // gateways and replicas, for their names
	odds      odds
	calm      bool
	calmAt    time.Time
	resting   bool // no traffic any more

	mu sync.Mutex
	// The fields below are guarded by mu.
	events  events
	seq     uint64
	lucks   map[string]uint64 // draws by what for
	found   []violation
	trace   trace
	api     api
	bodies  map[string]*body                 // by UID
	open    map[string]map[*request]struct{} // requests by the pod that they were sent to, from the choice on
	links   map[[2]string]time.Time          // pairs of replicas that are cut off from each other, until when
	claims  int
	served  int
	ended   map[string]bool // UIDs of pods whose body has ended
	oracle  oracle
	leases  map[string]leased
	replied map[string]bool // UIDs of oneshots whose caller was answered
}

type leased struct{ inTouch, inStep time.Time }

// event is something that happens at a time.
type event struct {
	at  time.Time
	seq uint64
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// after has something done by the goroutine of the test, in time.
func (w *world) after(d time.Duration, do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.afterLocked(d, do)
}

func (w *world) afterLocked(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.events, event{time.Now().Add(d), w.seq, do})
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// every repeats something until it returns false.
func (w *world) every(d time.Duration, do func() bool) {
	w.after(d, func() {
		if do() {
			w.every(d, do)
		}
	})
}

// runFor lets the world go on; it stops at the first violation.
func (w *world) runFor(d time.Duration) {
	end := time.Now().Add(d)
	timer := time.NewTimer(d)
	defer timer.Stop()
	for !w.failed() {
		next, do := w.next(end)
		if do != nil {
			do()
			synctest.Wait()
			continue
		}
		if !time.Now().Before(end) {
			return
		}
		timer.Reset(time.Until(next))
		select {
		case <-timer.C:
		case <-w.wake:
		}
	}
}

// findings are what is not as it should be.
type findings []violation

func (f *findings) add(rule, format string, args ...any) {
	*f = append(*f, violation{rule, fmt.Sprintf(format, args...)})
}

// settle lets the world go on until all stays as it should be for some looks.
// What does not within the time is broken.
func (w *world) settle(within time.Duration, look func() findings) {
	end := time.Now().Add(within)
	for quiet := 0; quiet < enough; quiet++ {
		w.runFor(lookEvery)
		if w.failed() {
			return
		}
		found := look()
		if len(found) > 0 {
			quiet = -1
		}
		if time.Now().Before(end) {
			continue
		}
		for _, f := range found {
			w.violate(f.rule, "%s", f.text)
		}
		return
	}
}

// next is the event that is due, or when the next one is.
func (w *world) next(end time.Time) (time.Time, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events) == 0 || w.events[0].at.After(end) {
		return end, nil
	}
	if at := w.events[0].at; at.After(time.Now()) {
		return at, nil
	}
	e := heap.Pop(&w.events).(event)
	return e.at, e.do
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.found) > 0
}

func (w *world) violateLocked(rule, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.found = append(w.found, violation{rule, text})
	w.trace.add("VIOLATION of "+rule, "", text)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *world) violate(rule, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violateLocked(rule, format, args...)
}

// luck is a number that depends on the seed, on what it is for, and on how often
// that was asked: not on which goroutine came first.
func (w *world) luckLocked(what, of string) uint64 {
	key := what + "/" + of
	w.lucks[key]++
	return xxhash.Sum64String(fmt.Sprint(w.seed, "/", key, "/", w.lucks[key]))
}

func (w *world) luck(what, of string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.luckLocked(what, of)
}

// between is a duration of a luck.
func between(luck uint64, least, most time.Duration) time.Duration {
	return least + time.Duration(luck%uint64(most-least+1))
}

// upTo is a random duration, for the goroutine of the test.
func (w *world) upTo(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rnd.Int64N(int64(most-least)+1))
}

// fated is upTo for what is to happen.
func (w *world) fated(least, most time.Duration) time.Duration {
	return least + time.Duration(w.fate.Int64N(int64(most-least)+1))
}

// oneOf is a random one.
func oneOf[T any](r *rand.Rand, all []T) (one T, ok bool) {
	draw := r.Uint64()
	if len(all) == 0 {
		return one, false
	}
	return all[draw%uint64(len(all))], true
}

// trace is the latest of what happened.
type trace struct {
	lines []line
	at    int
}

type line struct {
	at          time.Time
	who, format string
	args        []any
	logged      func() string
}

const traced = 400

func (t *trace) put(l line) {
	l.at = time.Now()
	if len(t.lines) < traced {
		t.lines = append(t.lines, l)
		return
	}
	t.lines[t.at] = l
	t.at = (t.at + 1) % traced
}

func (t *trace) add(who, format string, args ...any) {
	t.put(line{who: who, format: format, args: args})
}

// last are the newest n lines in words.
func (t *trace) last(n int, began time.Time) string {
	all := append(append([]line{}, t.lines[t.at:]...), t.lines[:t.at]...)
	if len(all) > n {
		all = all[len(all)-n:]
	}
	var b strings.Builder
	for _, l := range all {
		fmt.Fprintf(&b, "  %8.3f %-12s ", l.at.Sub(began).Seconds(), l.who)
		switch {
		case l.logged != nil:
			b.WriteString(l.logged())
		case l.format == "":
			fmt.Fprint(&b, l.args...)
		default:
			fmt.Fprintf(&b, l.format, l.args...)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// say notes what happens to the world.
func (w *world) say(who, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace.add(who, format, args...)
}
