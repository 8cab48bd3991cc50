package hold

import (
	"context"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// maxMargin is how much earlier than its waiters a question ends at most, so
// that the controller's word on why there is no instance reaches them in time.
const maxMargin = 250 * time.Millisecond

// fly asks for the line until there is an answer or nobody waits any more.
func (h *Hall) fly(ctx context.Context, l *line) {
	pause := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(h.opts.Backoff),
		backoff.WithMaxInterval(h.opts.MaxBackoff),
		backoff.WithMaxElapsedTime(0),
	)
	exclude := slices.Clone(l.exclude)
	for attempts := 0; ; {
		a := h.ask(ctx, l, exclude)
		if a.Exclude != "" {
			exclude = append(exclude, a.Exclude)
			attempts++
		}
		a.Final = a.Final || attempts >= h.opts.Attempts
		if h.settle(ctx, l, a) || !wait(ctx, pause.NextBackOff()) {
			return
		}
	}
}

// ask puts the question once, for as long as the most patient waiter will wait.
func (h *Hall) ask(ctx context.Context, l *line, exclude []string) Answer {
	h.mu.Lock()
	deadline := l.deadline
	h.mu.Unlock()
	margin := min(maxMargin, time.Until(deadline)/10)
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(-margin))
	defer cancel()
	return h.opts.Asker.Ask(ctx, l.function, exclude)
}

// settle hands a out and reports whether the line is over.
func (h *Hall) settle(ctx context.Context, l *line, a Answer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.tickets.Len() == 0 {
		h.orphan(l.function, a.Instance)
		return true
	}
	if a.Err == nil {
		h.deliverLocked(l, Result{Instance: a.Instance})
		return true
	}
	l.last = a.Err
	if a.Final {
		h.deliverLocked(l, Result{Err: a.Err})
		return true
	}
	return ctx.Err() != nil
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
