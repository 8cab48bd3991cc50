// Package hearing knows since when a controller hears what routers say, without a
// break. What it has not heard of may be in use all the same: so before it takes
// silence for disuse, it must have listened for as long as that takes.
//
// It hears from the moment it is on the ring, since routers' heartbeats are told to
// the replicas there. That may be minutes after the start of the process, where the
// API server is slow. And it hears nothing while its process is stopped, by its
// machine, say, which is migrated or asleep: then everything seems to be long past
// when it goes on.
package hearing

import (
	"context"
	"sync"
	"time"
)

// Hearing is one controller's. Safe for concurrent use.
type Hearing struct {
	pause time.Duration

	mu          sync.Mutex
	since, last time.Time // since is zero before Begin; last is when somebody looked
}

// New makes one that has not begun. A process that stands still for pause or
// longer begins to hear anew; half of the time after which silence counts as disuse
// leaves the other half to be heard in. pause must be positive.
func New(pause time.Duration) *Hearing { return &Hearing{pause: pause} }

// Begin says that routers are heard from now on. Only the first one counts.
func (h *Hearing) Begin(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		h.since, h.last = now, now
	}
}

// Since is when the hearing began that goes on at now: now itself before Begin, and
// after a pause that nobody has noticed before. Calls with an earlier now than
// others had are harmless.
func (h *Hearing) Since(now time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		return now
	}
	if now.Sub(h.last) >= h.pause {
		h.since = now
	}
	if now.After(h.last) {
		h.last = now
	}
	return h.since
}

// Run looks often enough that only pauses of the process go by without a look. It
// returns nil when ctx has ended.
func (h *Hearing) Run(ctx context.Context) error {
	tick := time.NewTicker(h.pause / 10)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			h.Since(now)
		}
	}
}
