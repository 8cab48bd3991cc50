package ring

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrEmpty is returned when nobody is on the ring: no replica can be
// responsible for any function.
var ErrEmpty = errors.New("no controller is on the ring: none is ready yet, or all are stopping")

// Members holds the ring in force. It is safe for concurrent use.
type Members struct {
	wait time.Duration

	mu      sync.Mutex
	current *Ring
	joined  chan struct{} // closed while the ring has members
}

// NewMembers starts with an empty ring. Wait is how long Ring waits for the
// first member (--hash-ring-wait-time); 0 means that it does not wait.
func NewMembers(wait time.Duration) *Members {
	return &Members{wait: wait, current: New(), joined: make(chan struct{})}
}

// Set replaces the members.
func (m *Members) Set(ips ...string) {
	next := New(ips...)
	m.mu.Lock()
	defer m.mu.Unlock()
	was, is := len(m.current.members) > 0, len(next.members) > 0
	m.current = next
	switch {
	case is && !was:
		close(m.joined)
	case was && !is:
		m.joined = make(chan struct{})
	}
}

// Current returns the ring in force without waiting; it may be empty.
func (m *Members) Current() *Ring {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}

// Owner returns the member that owns hash. On an empty ring it waits for a
// member, then gives up with ErrEmpty; it returns ctx.Err() when ctx ends first.
func (m *Members) Owner(ctx context.Context, hash uint64) (string, error) {
	ip, ok := m.Current().Owner(hash)
	if ok {
		return ip, nil
	}
	if err := m.await(ctx); err != nil {
		return "", err
	}
	if ip, ok = m.Current().Owner(hash); !ok {
		return "", ErrEmpty // left again in the same moment
	}
	return ip, nil
}

func (m *Members) await(ctx context.Context) error {
	m.mu.Lock()
	joined := m.joined
	m.mu.Unlock()
	t := time.NewTimer(m.wait)
	defer t.Stop()
	select {
	case <-joined:
		return nil
	case <-t.C:
		return fmt.Errorf("wait %s for a ring member: %w", m.wait, ErrEmpty)
	case <-ctx.Done():
		return ctx.Err()
	}
}
