package soak

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// Visit is a request as the pod saw it that it came to.
type Visit struct {
	At   time.Time
	Addr string
	// Pod and UID are the pod's, Image is what it runs.
	Pod, UID string
	Image    Image
	// Tenant is the pod's own, "" while nobody has it.
	Tenant  string
	Oneshot bool
	// Asked is the tenant that the client is; Instance and Request are what
	// extproc said.
	Asked, Instance, Request string
	// Path that was asked for.
	Path string
}

// Verdict is what a visit shows.
type Verdict string

// The verdicts, worst last.
const (
	// Home is a pod of the tenant that asked.
	Home Verdict = "home"
	// Stray is a pod that nobody has yet. Only an image that checks nothing
	// can answer there.
	Stray Verdict = "stray"
	// Twice is a oneshot pod that had served a request before.
	Twice Verdict = "oneshot pod served twice"
	// Foreign is a pod of another tenant.
	Foreign Verdict = "another tenant's pod"
)

// Judge says what a visit shows; before is how many the pod had.
func Judge(v Visit, before int) Verdict {
	switch {
	case v.Tenant == "" && v.Image == Plain:
		return Stray
	case v.Tenant != v.Asked:
		return Foreign
	case v.Oneshot && before > 0:
		return Twice
	}
	return Home
}

// Ledger counts what happens in a run and keeps what must not. Safe for
// concurrent use.
type Ledger struct {
	began time.Time
	tell  func(string)
	past  func(ip string) []Tenure

	mu sync.Mutex
	// The fields below are guarded by mu.
	outcomes   map[string]int
	visits     map[string]int // by image and verdict
	oneshots   map[string]int // visits by UID
	violations []string
	violators  map[string]bool // requests that violations were told of
	chaos      map[string]int
	recent     []string // chaos of the last moments
}

// NewLedger begins a run. The first violations are told at once, with all that
// is known: what was done to the world before, and who had the address, which
// past tells.
func NewLedger(tell func(string), past func(ip string) []Tenure) *Ledger {
	return &Ledger{
		began: time.Now(), tell: tell, past: past, outcomes: map[string]int{}, visits: map[string]int{},
		oneshots: map[string]int{}, violators: map[string]bool{}, chaos: map[string]int{},
	}
}

const (
	// recentChaos is how many chaos events a violation is told with.
	recentChaos = 12
	// told is how many violations are told; all are counted.
	told = 20
)

// Visit is called by pods before they answer.
func (l *Ledger) Visit(v Visit) Verdict {
	l.mu.Lock()
	verdict := Judge(v, l.oneshots[v.UID])
	l.visits[fmt.Sprintf("%s image: %s", v.Image, verdict)]++
	if v.Oneshot {
		l.oneshots[v.UID]++
	}
	l.mu.Unlock()
	if verdict == Twice || verdict == Foreign {
		l.Violation(v.Request, fmt.Sprintf("%s: %q came to %s %s (%s, tenant %q, oneshot %t) at %s; instance asked for %q, request %q, path %s",
			verdict, v.Asked, v.Pod, v.UID, v.Image, v.Tenant, v.Oneshot, v.Addr, v.Instance, v.Request, v.Path), v.Addr)
	}
	return verdict
}

// Violation notes what must not happen: with which request, and at which
// address (ip:port). Of one request only the first is noted, since the pod and
// the client both see what goes wrong.
func (l *Ledger) Violation(request, what, addr string) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s VIOLATION %s", time.Now().Format("15:04:05.000"), what)
	if ip, _, err := net.SplitHostPort(addr); err == nil {
		for _, t := range l.past(ip) {
			fmt.Fprintf(&b, "\n    %s had %s", ip, t)
		}
	}
	l.mu.Lock()
	for _, c := range l.recent {
		fmt.Fprintf(&b, "\n    chaos %s", c)
	}
	fresh := request == "" || !l.violators[request]
	l.violators[request] = true
	if fresh {
		l.violations = append(l.violations, b.String())
	}
	tell := fresh && len(l.violations) <= told
	l.mu.Unlock()
	if tell {
		l.tell(b.String())
	}
}

// Outcome counts a request as its client saw it end.
func (l *Ledger) Outcome(o string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outcomes[o]++
}

// Chaos notes what was done to the world.
func (l *Ledger) Chaos(kind, detail string) {
	line := fmt.Sprintf("%s %s %s", time.Now().Format("15:04:05.000"), kind, detail)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.chaos[kind]++
	if kind == podKill {
		return // too many to be told with each violation, which names the address's own
	}
	l.recent = append(l.recent[max(0, len(l.recent)-recentChaos+1):], line)
}

// podKill is the kind of chaos that every pod dies of.
const podKill = "kill pod"

// Violations lists all.
func (l *Ledger) Violations() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.violations)
}

// Oneshots is how many oneshot pods served a request.
func (l *Ledger) Oneshots() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.oneshots)
}

// Requests is how many have ended, and how many of them well.
func (l *Ledger) Requests() (all, ok int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for o, n := range l.outcomes {
		all += n
		if o == OK {
			ok = n
		}
	}
	return all, ok
}

// Report is the run in words, for people.
func (l *Ledger) Report(r Reuse) string {
	all, _ := l.Requests()
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	took := time.Since(l.began)
	fmt.Fprintf(&b, "%d requests in %s, %.0f/s\n", all, took.Round(time.Second), float64(all)/took.Seconds())
	section(&b, "outcomes as clients saw them", l.outcomes)
	section(&b, "requests as pods saw them", l.visits)
	section(&b, "chaos", l.chaos)
	fmt.Fprintf(&b, "addresses: given to another pod %d times, %d of them within %s; to another tenant %d times, %d of them within %s\n",
		r.Pods, r.PodsSoon, Soon, r.Tenants, r.TenantsSoon, Soon)
	fmt.Fprintf(&b, "violations: %d\n", len(l.violations))
	return b.String()
}

func section(b *strings.Builder, title string, counts map[string]int) {
	fmt.Fprintf(b, "%s:\n", title)
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(b, "  %7d %s\n", counts[k], k)
	}
}
