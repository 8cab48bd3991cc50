package ring

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestOwnerWaitsForTheFirstMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMembers(10 * time.Second)
		timer := time.AfterFunc(3*time.Second, func() { m.Set("10.0.0.1") })
		defer timer.Stop()
		start := time.Now()
		ip, err := m.Owner(t.Context(), 1)
		if ip != "10.0.0.1" || err != nil || time.Since(start) != 3*time.Second {
			t.Errorf("Owner = %q, %v after %s, want 10.0.0.1 after 3s", ip, err, time.Since(start))
		}
	})
}

func TestOwnerGivesUpOnAnEmptyRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMembers(10 * time.Second)
		m.Set("10.0.0.1")
		m.Set() // the last one left
		start := time.Now()
		if _, err := m.Owner(t.Context(), 1); !errors.Is(err, ErrEmpty) || time.Since(start) != 10*time.Second {
			t.Errorf("Owner = %v after %s, want ErrEmpty after 10s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.Owner(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Owner = %v, want the caller's deadline", err)
		}
	})
}

func TestSetReplacesTheRing(t *testing.T) {
	m := NewMembers(0)
	for _, ip := range []string{"10.0.0.1", "10.0.0.2"} {
		m.Set(ip)
		if got, err := m.Owner(t.Context(), 99); got != ip || err != nil {
			t.Errorf("Owner = %q, %v, want %q", got, err, ip)
		}
	}
}
