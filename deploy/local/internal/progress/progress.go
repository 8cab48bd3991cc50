// Package progress tells a person what is being done, how long it usually takes, and that it
// still goes on. It owns its writer and nothing else; it decides nothing.
package progress

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// heartbeat keeps the longest silence well below half a minute.
const heartbeat = 20 * time.Second

// Reporter writes one plain line per fact. It is safe for concurrent use.
type Reporter struct {
	mu  sync.Mutex
	out io.Writer
}

// New returns a Reporter that writes to out.
func New(out io.Writer) *Reporter { return &Reporter{out: out} }

// Line writes one line. Errors of the writer are ignored: progress is not worth a failure.
func (r *Reporter) Line(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintf(r.out, format+"\n", args...)
}

// Step announces what, runs do, and says how long it took. usual is the common duration on a
// two-core machine; zero means a moment and is not printed. While do runs a line appears at
// least every 20 s. The error of do is returned as it is.
func (r *Reporter) Step(ctx context.Context, what string, usual time.Duration, do func(context.Context) error) error {
	r.Line("%s%s ...", what, usually(usual))
	start := time.Now()
	stop := r.beat(what, start)
	err := do(ctx)
	stop()
	took := time.Since(start).Round(100 * time.Millisecond)
	if err != nil {
		r.Line("%s: failed after %v", what, took)
		return err
	}
	r.Line("%s: done in %v", what, took)
	return nil
}

// beat writes a line at every heartbeat until the returned function is called, which waits
// for the writing goroutine to end.
func (r *Reporter) beat(what string, start time.Time) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(heartbeat)
		defer ticker.Stop()
		for {
			select {
			case <-quit:
				return
			case now := <-ticker.C:
				r.Line("%s: still at it after %v", what, now.Sub(start).Round(time.Second))
			}
		}
	}()
	return func() { close(quit); <-ended }
}

func usually(d time.Duration) string {
	switch {
	case d <= 0:
		return ""
	case d < time.Minute:
		return fmt.Sprintf(" (usually about %d s)", int(d.Seconds()))
	default:
		return fmt.Sprintf(" (first time about %d min on 2 cores)", int(d.Round(time.Minute).Minutes()))
	}
}
