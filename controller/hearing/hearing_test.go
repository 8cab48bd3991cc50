package hearing

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const pause = 45 * time.Second

func TestSince(t *testing.T) {
	begin := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		name  string
		looks []time.Duration // after the beginning
		want  []time.Duration
	}{
		{"looks all the time", []time.Duration{0, time.Second, 40 * time.Second, 84 * time.Second}, []time.Duration{0, 0, 0, 0}},
		{"a pause", []time.Duration{time.Second, 47 * time.Second, 60 * time.Second}, []time.Duration{0, 47 * time.Second, 47 * time.Second}},
		{"a pause at once", []time.Duration{pause}, []time.Duration{pause}},
		{"just no pause", []time.Duration{pause - 1}, []time.Duration{0}},
		{"a look that comes late", []time.Duration{40 * time.Second, 10 * time.Second, 80 * time.Second}, []time.Duration{0, 0, 0}},
		{"two pauses", []time.Duration{time.Hour, 2 * time.Hour}, []time.Duration{time.Hour, 2 * time.Hour}},
	} {
		h := New(pause)
		if at := begin.Add(-time.Minute); !h.Since(at).Equal(at) {
			t.Errorf("%s: hears before it has begun", row.name)
		}
		h.Begin(begin)
		h.Begin(begin.Add(time.Second)) // only the first one counts
		for i, look := range row.looks {
			if got := h.Since(begin.Add(look)).Sub(begin); got != row.want[i] {
				t.Errorf("%s: after %v it hears since %v, want %v", row.name, look, got, row.want[i])
			}
		}
	}
}

// However seldom others look, a process that runs is not taken for one that stood still.
func TestRunKeepsLooking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		h, done := New(pause), make(chan error)
		begin := time.Now()
		h.Begin(begin)
		go func() { done <- h.Run(ctx) }()
		<-time.After(time.Hour)
		if got := h.Since(time.Now()); !got.Equal(begin) {
			t.Errorf("hears since %v after the beginning", got.Sub(begin))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
