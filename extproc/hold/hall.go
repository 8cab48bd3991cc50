// Package hold is where requests wait for an instance: bounded, in the order in
// which they came, with one question to the controller under way per function -
// or per request, for oneshots.
//
// The hall owns the questions. A question ends when nobody waits for its answer
// any more; an instance of a oneshot that comes all the same is handed to
// Options.Orphan. Waiters own their deadlines and tickets. Requests that cannot
// use the same instances wait in a line of their own.
package hold

import (
	"container/list"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"skipper/extproc/header"
	"skipper/extproc/table"
)

// Answer is what asking the controller once came to.
type Answer struct {
	// Instance is nil where Err is set.
	Instance *table.Instance
	Err      error
	// Final says that asking again would not help.
	Final bool
	// Exclude names an instance that the next question should leave out.
	Exclude string
}

// Asker asks the controller for an instance of f, once, at most until the
// deadline of ctx.
type Asker interface {
	Ask(ctx context.Context, f *header.Function, exclude []string) Answer
}

// Options of a Hall.
type Options struct {
	Asker Asker
	// PerFunction, PerTenant and Total bound how many may wait (contract section
	// 4: 1,000, 2,000 and 10,000).
	PerFunction, PerTenant, Total int
	// Attempts bounds how often a question is asked again that was answered, but
	// with nothing that can be used (contract: --max-round-trip-attempts, 6).
	Attempts int
	// Backoff and MaxBackoff are the pauses between questions (100 ms and 5 s).
	Backoff, MaxBackoff time.Duration
	// Orphan takes an instance of a oneshot that nobody waits for any more.
	// It must not block.
	Orphan func(*table.Instance)
}

// FullError says which bound is reached.
type FullError struct {
	// Of is "function", "tenant" or "extproc".
	Of    string
	Bound int
}

func (e *FullError) Error() string {
	return fmt.Sprintf("%d requests of this %s wait for an instance already", e.Bound, e.Of)
}

// Hall holds all waiting requests. Safe for concurrent use.
type Hall struct {
	opts    Options
	ctx     context.Context //nolint:containedctx // lifetime of the questions, ended by Close
	stop    context.CancelFunc
	flights sync.WaitGroup

	mu        sync.Mutex
	total     int
	tenants   map[string]int
	functions map[string]int
	// lines of functions that share their instances, by resource name: one for
	// all that exclude the same instances.
	lines map[string][]*line
}

// line is the requests that wait for the same answer.
type line struct {
	function *header.Function
	exclude  []string   // sorted
	tickets  *list.List // of *Ticket, first come first
	end      context.CancelFunc
	last     error
	deadline time.Time
}

// Result is what a wait came to. With neither Instance nor Err, the table has
// instances now.
type Result struct {
	Instance *table.Instance
	Err      error
}

// Ticket is one waiting request. Whoever holds it receives from Result and calls
// Leave once at the end. Not safe for concurrent use.
type Ticket struct {
	// Result delivers once.
	Result chan Result

	hall     *Hall
	function *header.Function
	deadline time.Time
	span     trace.Span // nil: none
	line     *line
	place    *list.Element
}

// New returns an empty hall; Close it.
func New(o Options) *Hall {
	ctx, stop := context.WithCancel(context.Background())
	return &Hall{opts: o, ctx: ctx, stop: stop, tenants: map[string]int{}, functions: map[string]int{}, lines: map[string][]*line{}}
}

// Close ends all questions and waits for them. Tickets get no result any more.
func (h *Hall) Close() {
	h.stop()
	h.flights.Wait()
}

// Waiting is the number of requests that hold a ticket.
func (h *Hall) Waiting() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.total
}

// Enter takes a place for a request that waits for f until the deadline, and sees
// to it that the controller is asked for an instance other than those with the
// names in exclude. The error is a *FullError.
func (h *Hall) Enter(f *header.Function, deadline time.Time, exclude ...string) (*Ticket, error) {
	return h.EnterTraced(nil, f, deadline, exclude...)
}

// EnterTraced is Enter for a request whose wait is a span, nil for none. The
// question that several wait for belongs to the span of who came first.
func (h *Hall) EnterTraced(span trace.Span, f *header.Function, deadline time.Time, exclude ...string) (*Ticket, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.fullLocked(f); err != nil {
		return nil, err
	}
	h.total++
	h.tenants[f.Key.Tenant]++
	h.functions[f.Name]++
	t := &Ticket{Result: make(chan Result, 1), hall: h, function: f, deadline: deadline, span: span}
	t.standLocked(exclude)
	return t, nil
}

// Again puts the ticket, whose result was received, into a line once more. It
// keeps its place in the hall meanwhile: the bounds do not apply to it anew.
func (t *Ticket) Again(exclude ...string) {
	t.hall.mu.Lock()
	defer t.hall.mu.Unlock()
	t.standLocked(exclude)
}

func (t *Ticket) standLocked(exclude []string) {
	l := t.hall.lineLocked(t.span, t.function, slices.Sorted(slices.Values(exclude)))
	if t.deadline.After(l.deadline) {
		l.deadline = t.deadline
	}
	t.line, t.place = l, l.tickets.PushBack(t)
}

func (h *Hall) fullLocked(f *header.Function) error {
	switch {
	case h.functions[f.Name] >= h.opts.PerFunction:
		return &FullError{"function", h.opts.PerFunction}
	case h.tenants[f.Key.Tenant] >= h.opts.PerTenant:
		return &FullError{"tenant", h.opts.PerTenant}
	case h.total >= h.opts.Total:
		return &FullError{"extproc", h.opts.Total}
	}
	return nil
}

// lineLocked returns the line to stand in: one of the function's, or a new one.
func (h *Hall) lineLocked(span trace.Span, f *header.Function, exclude []string) *line {
	for _, l := range h.lines[f.Name] {
		if slices.Equal(l.exclude, exclude) {
			return l
		}
	}
	ctx, end := context.WithCancel(h.ctx)
	if span != nil {
		ctx = trace.ContextWithSpan(ctx, span)
	}
	l := &line{function: f, exclude: exclude, tickets: list.New(), end: end}
	if !f.Key.Oneshot {
		h.lines[f.Name] = append(h.lines[f.Name], l)
	}
	h.flights.Go(func() { h.fly(ctx, l) })
	return l
}

// Wake sends all that wait for a function back to the table.
func (h *Hall) Wake(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range slices.Clone(h.lines[name]) {
		h.deliverLocked(l, Result{})
	}
}

// deliverLocked gives r to all in the line, which is over then.
func (h *Hall) deliverLocked(l *line, r Result) {
	for e := l.tickets.Front(); e != nil; e = e.Next() {
		e.Value.(*Ticket).Result <- r // has room: a ticket is in one line, once
	}
	l.tickets.Init()
	h.closeLocked(l)
}

// closeLocked ends a line in which nobody stands any more.
func (h *Hall) closeLocked(l *line) {
	l.end()
	name := l.function.Name
	h.lines[name] = slices.DeleteFunc(h.lines[name], func(other *line) bool { return other == l })
	if len(h.lines[name]) == 0 {
		delete(h.lines, name)
	}
}

// Leave gives the place back, whether or not a result came. It returns the last
// trouble with the controller, nil where there was none. A result that was not
// received and holds a oneshot's instance goes to Options.Orphan.
func (t *Ticket) Leave() error {
	h := t.hall
	h.mu.Lock()
	defer h.mu.Unlock()
	f := t.function
	h.total--
	lower(h.tenants, f.Key.Tenant)
	lower(h.functions, f.Name)
	select {
	case r := <-t.Result:
		h.orphan(f, r.Instance)
	default:
		h.stepOutLocked(t)
	}
	return t.line.last
}

func (h *Hall) stepOutLocked(t *Ticket) {
	if t.line.tickets.Len() == 0 {
		return // the result was delivered and received
	}
	t.line.tickets.Remove(t.place)
	if t.line.tickets.Len() == 0 {
		h.closeLocked(t.line)
	}
}

func (h *Hall) orphan(f *header.Function, i *table.Instance) {
	if i != nil && f.Key.Oneshot && h.opts.Orphan != nil {
		h.opts.Orphan(i)
	}
}

func lower(m map[string]int, k string) {
	if m[k]--; m[k] == 0 {
		delete(m, k)
	}
}
