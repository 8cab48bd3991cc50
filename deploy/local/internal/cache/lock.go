package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockRetry is how often a taken lock is looked at again: a person does not notice it, and a
// build takes minutes.
const lockRetry = 200 * time.Millisecond

// waitingEvery keeps a person informed while another process holds a lock.
const waitingEvery = 20 * time.Second

// Lock takes the file lock of that name, waiting until it is free or ctx ends. The kernel
// frees it when the process dies, however it dies.
func (s *Store) Lock(ctx context.Context, name string) (release func(), err error) {
	f, err := os.OpenFile(s.Path("locks", name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock of %s: %w", name, err)
	}
	if err := s.waitLock(ctx, f, name); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return func() { _ = f.Close() }, nil
}

func (s *Store) waitLock(ctx context.Context, f *os.File, name string) error {
	ticker := time.NewTicker(lockRetry)
	defer ticker.Stop()
	var told time.Time
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if time.Since(told) > waitingEvery {
			s.waiting(name)
			told = time.Now()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
