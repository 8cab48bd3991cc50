package main

import (
	"context"
	"fmt"
	"time"
)

// await looks until ok, for fleetPatience at most.
func await(ctx context.Context, what string, every time.Duration, ok func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, fleetPatience)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if done, err := ok(ctx); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
}

// pauseFor waits for d.
func pauseFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
