package function

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// tracker counts handlers that run, hijacked connections included, and tells a stopping server when there are none.
// It is safe for concurrent use; one goroutine at a time may drain or wait.
type tracker struct {
	running  atomic.Int64
	draining atomic.Bool
	// idle gets a value whenever the count falls to zero. One place is enough: who reads it looks at the count again.
	idle chan struct{}
}

func newTracker() *tracker { return &tracker{idle: make(chan struct{}, 1)} }

func (t *tracker) inFlight() int64 { return t.running.Load() }

// track counts the requests to next. While draining, each response asks its client for a new connection (HTTP/1.1:
// Connection: close, HTTP/2: GOAWAY), so that clients leave one by one and no idle connection is closed under a request.
func (t *tracker) track(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.running.Add(1)
		defer t.done()
		if t.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

func (t *tracker) done() {
	if t.running.Add(-1) != 0 {
		return
	}
	select {
	case t.idle <- struct{}{}:
	default:
	}
}

// drain returns after delay, once nothing runs any more, or when ctx ends.
func (t *tracker) drain(ctx context.Context, delay time.Duration) {
	t.draining.Store(true)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	_ = t.wait(ctx) // the caller looks again after it closed the listener
}

// wait returns nil once nothing runs, or the context's error.
func (t *tracker) wait(ctx context.Context) error {
	for t.running.Load() > 0 {
		select {
		case <-t.idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
