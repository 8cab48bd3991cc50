package retry

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs the queue; stop ends it and returns what Run returned.
func start(t *testing.T, cfg Config) (q *Queue, stop func() error) {
	t.Helper()
	q = New(cfg, zap.NewNop())
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var err error
	running.Go(func() { err = q.Run(ctx) })
	return q, func() error {
		cancel()
		running.Wait()
		return err
	}
}

func TestJobRunsUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, stop := start(t, Config{Name: "test", Workers: 2, Attempt: time.Second, Grace: time.Second})
		begin, n := time.Now(), 0
		q.Add("a", func(context.Context) error {
			if n++; n < 4 {
				return errors.New("not yet")
			}
			return nil
		})
		if err := q.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		// 100, 200 and 400 ms of pauses.
		if took := time.Since(begin); n != 4 || took != 700*time.Millisecond || q.Len() != 0 {
			t.Errorf("%d attempts in %s, %d jobs left", n, took, q.Len())
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestStopGivesWaitingJobsALastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, stop := start(t, Config{Name: "test", Attempt: time.Second, Grace: time.Minute})
		var ready atomic.Bool
		q.Add("a", func(context.Context) error {
			if !ready.Load() {
				return errors.New("not yet")
			}
			return nil
		})
		<-time.NewTimer(time.Minute).C // the pauses are long by now
		ready.Store(true)
		begin := time.Now()
		if err := stop(); err != nil || time.Since(begin) != 0 {
			t.Errorf("stopped after %s: %v", time.Since(begin), err)
		}
	})
}

func TestStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, stop := start(t, Config{Name: "test", Attempt: time.Hour, Grace: 5 * time.Second})
		q.Add("a", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		synctest.Wait()
		begin := time.Now()
		if err := stop(); err == nil || time.Since(begin) != 5*time.Second {
			t.Errorf("stopped after %s with %v, want 5s and an error", time.Since(begin), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := q.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error("a job that was given up counts as done")
		}
	})
}

func TestNewerJobIsNotTakenForDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, stop := start(t, Config{Name: "test", Workers: 4, Attempt: time.Hour, Grace: time.Second})
		release := make(chan struct{})
		var order []string
		q.Add("a", func(context.Context) error {
			<-release
			order = append(order, "old")
			return nil
		})
		synctest.Wait()
		q.Add("a", func(context.Context) error {
			order = append(order, "new")
			return nil
		})
		synctest.Wait()
		close(release)
		if err := q.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(order) != 2 || order[1] != "new" {
			t.Errorf("jobs ran: %v", order)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
