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

// Lock takes the file lock of that name, waiting until it is free or ctx ends. The kernel
// frees it when the process dies, however it dies.
func (s *Store) Lock(ctx context.Context, name string) (release func(), err error) {
	f, err := os.OpenFile(s.Path("locks", name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock of %s: %w", name, err)
	}
	if err := waitLock(ctx, f); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return func() { f.Close() }, nil
}

func waitLock(ctx context.Context, f *os.File) error {
	ticker := time.NewTicker(lockRetry)
	defer ticker.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
