package function

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// drainStory starts one request of the given length and drains; it returns when the drain was over, counted from
// its start in virtual time, and what was left in flight.
func drainStory(t *testing.T, request, delay, grace time.Duration) (over time.Duration, left int64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		busy := newTracker()
		h := busy.track(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		serving, end := context.WithTimeout(t.Context(), request)
		defer end()
		if request > 0 {
			go h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(serving, http.MethodGet, "/", http.NoBody))
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), grace)
		defer cancel()
		start := time.Now()
		busy.drain(ctx, delay)
		over, left = time.Since(start), busy.inFlight()
	})
	return over, left
}

func TestDrain(t *testing.T) {
	rows := []struct {
		name                  string
		request, delay, grace time.Duration
		over                  time.Duration
		left                  int64
	}{
		{"idle server keeps on for the delay", 0, 3 * time.Second, 25 * time.Second, 3 * time.Second, 0},
		{"short request ends within the delay", time.Second, 3 * time.Second, 25 * time.Second, 3 * time.Second, 0},
		{"long request is waited for", 10 * time.Second, 3 * time.Second, 25 * time.Second, 10 * time.Second, 0},
		{"longer than the grace is left", time.Hour, 3 * time.Second, 25 * time.Second, 25 * time.Second, 1},
		{"grace shorter than the delay", 0, 3 * time.Second, time.Second, time.Second, 0},
		{"no delay", time.Second, 0, 25 * time.Second, time.Second, 0},
		{"neither", time.Second, 0, 0, 0, 1},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			over, left := drainStory(t, row.request, row.delay, row.grace)
			if over != row.over || left != row.left {
				t.Errorf("drained after %s with %d left, want %s with %d", over, left, row.over, row.left)
			}
		})
	}
}

// A value left in the channel by an earlier idle moment must not end a wait.
func TestWaitLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := newTracker()
		h := busy.track(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		gone, leave := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{closed(t), gone} {
			go h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
			synctest.Wait()
		}
		over := make(chan error, 1)
		go func() { over <- busy.wait(t.Context()) }()
		synctest.Wait()
		select {
		case <-over:
			t.Error("wait ended while a request ran")
		default:
		}
		leave()
		if err := <-over; err != nil {
			t.Errorf("wait: %v", err)
		}
	})
}

func closed(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
