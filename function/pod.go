package function

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
)

// Assignment is what an assigned pod knows about itself. It is a value; nobody changes it once published.
type Assignment struct {
	Function Function
	// PodName and PodUID are this pod's, as the token says.
	PodName, PodUID string
}

// Tenant is whom this pod serves.
func (a Assignment) Tenant() string { return a.Function.Tenant }

// Metadata is the function's opaque text.
func (a Assignment) Metadata() string { return a.Function.Metadata }

// Pod is one pod's membership in its pool. It is safe for concurrent use, and goes from unassigned to assigned once,
// never back.
type Pod struct {
	cfg Config
	log *zap.Logger

	// assigned is nil until the assignment is accepted; written under mu, read without.
	assigned atomic.Pointer[Assignment]

	// mu guards pending; it is never held while OnAssign runs.
	mu sync.Mutex
	// pending is the one assignment that is being considered, nil when there is none.
	pending *attempt
}

// attempt is an assignment on its way through OnAssign. err may be read once done is closed.
type attempt struct {
	assignment Assignment
	done       chan struct{}
	err        error
}

// New checks the configuration, all of it at once, and returns a Pod without an assignment.
func New(cfg Config) (*Pod, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("check function configuration: %w", err)
	}
	log := cfg.Logger
	if log == nil {
		log = zap.NewNop()
	}
	return &Pod{cfg: cfg, log: log}, nil
}

// Assigned returns the assignment, or false while there is none.
func (p *Pod) Assigned() (Assignment, bool) {
	a := p.assigned.Load()
	if a == nil {
		return Assignment{}, false
	}
	return *a, true
}

// verdict is what becomes of an assignment beside the one a pod holds.
type verdict int

const (
	// take: the pod is free.
	take verdict = iota
	// repeat: it is the same assignment once more.
	repeat
	// conflict: it is another assignment.
	conflict
)

// judge compares an assignment with the one held (nil: none). Scale is no part of an assignment.
func judge(held *Assignment, a Assignment) verdict {
	switch {
	case held == nil:
		return take
	case held.Function.SameIdentity(a.Function) && held.Function.Metadata == a.Function.Metadata &&
		held.PodName == a.PodName && held.PodUID == a.PodUID:
		return repeat
	}
	return conflict
}

// accept makes a the pod's assignment, or says why not. Of several at once exactly one gets through; those that
// bring the same wait for its outcome and share it.
func (p *Pod) accept(ctx context.Context, a Assignment) error {
	try, mine, err := p.begin(a)
	switch {
	case err != nil || try == nil:
		return err
	case !mine:
		return try.wait(ctx)
	}
	// Holds when OnAssign panics, so that the pod is free again then too.
	try.err = fmt.Errorf("%w: the callback did not return", errCallback)
	defer p.finish(try)
	try.err = p.call(ctx, a)
	return try.err
}

// begin decides under the lock. A nil attempt without an error means that the pod has this assignment already; mine
// tells that the caller is to carry the attempt through.
func (p *Pod) begin(a Assignment) (try *attempt, mine bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := p.assigned.Load()
	if held == nil && p.pending != nil {
		held = &p.pending.assignment
	}
	switch judge(held, a) {
	case conflict:
		return nil, false, fmt.Errorf("%w: pod %s belongs to %s and is not free for %s; use another pod",
			errConflict, p.cfg.PodName, describe(*held), describe(a))
	case repeat:
		return p.pending, false, nil
	}
	p.pending = &attempt{assignment: a, done: make(chan struct{})}
	return p.pending, true, nil
}

// call runs the author's callback, if there is one.
func (p *Pod) call(ctx context.Context, a Assignment) error {
	if p.cfg.OnAssign == nil {
		return nil
	}
	if err := p.cfg.OnAssign(ctx, a); err != nil {
		return fmt.Errorf("%w: %w", errCallback, err)
	}
	return nil
}

func (p *Pod) finish(try *attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if try.err == nil {
		p.assigned.Store(&try.assignment)
	}
	p.pending = nil
	close(try.done)
}

func (t *attempt) wait(ctx context.Context) error {
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errCallback, ctx.Err())
	}
}

func describe(a Assignment) string {
	return fmt.Sprintf("%s with metadata %.64q", a.Function, a.Function.Metadata)
}
