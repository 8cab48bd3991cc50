package limit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var start = time.Unix(1_700_000_000, 0)

func TestTenantClaimsPerMinute(t *testing.T) {
	tenants := NewTenants(60, 0)
	for i := range 60 {
		if err := tenants.Take("a", start); err != nil {
			t.Fatalf("claim %d: %v", i, err)
		}
	}
	var e *Error
	if err := tenants.Take("a", start); !errors.As(err, &e) || e.Limit != TenantClaimsPerMinute || e.RetryAfter != time.Second {
		t.Errorf("claim 61 = %v, %+v, want the limit, another try in 1 s", err, e)
	}
	if err := tenants.Take("b", start); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	if err := tenants.Check("a", start.Add(time.Second)); err != nil {
		t.Errorf("a second later: %v", err)
	}
	if err := tenants.Take("a", start.Add(time.Second)); err != nil {
		t.Errorf("checking has used the allowance up: %v", err)
	}
	if err := tenants.Take("a", start.Add(time.Second)); err == nil {
		t.Error("two claims in a second at 60 per minute, after all were used")
	}
}

func TestNoLimit(t *testing.T) {
	tenants := NewTenants(0, 0)
	for range 10_000 {
		tenants.Saw("a", start)
		if err := tenants.Take("a", start); err != nil {
			t.Fatal(err)
		}
	}
}

func TestClaimsSeenElsewhereCount(t *testing.T) {
	tenants := NewTenants(10, 0)
	for range 1000 {
		tenants.Saw("a", start)
	}
	var e *Error
	if err := tenants.Take("a", start); !errors.As(err, &e) || e.RetryAfter > 70*time.Second {
		t.Errorf("Take = %v, want a refusal for a little over a minute at most", err)
	}
}

func TestForgottenTenantBeginsAnew(t *testing.T) {
	tenants := NewTenants(1, 2)
	for i := range 5 {
		if err := tenants.Take(fmt.Sprint("t", i), start); err != nil {
			t.Fatal(err)
		}
	}
	if n := tenants.buckets.Len(); n != 2 {
		t.Errorf("%d tenants are remembered, want 2", n)
	}
	if err := tenants.Take("t0", start); err != nil {
		t.Errorf("forgotten tenant: %v", err)
	}
}

// In any stretch of time a tenant gets what came back in it and the allowance
// of a minute at most; and it is refused only where that is used up.
func TestTakeMatchesACountedAllowance(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		limit := uint32(1 + rnd.IntN(100))
		tenants, now := NewTenants(limit, 0), start
		left, at := float64(limit), start
		for range 500 {
			now = now.Add(time.Duration(rnd.Int64N(int64(2 * time.Minute / time.Duration(limit)))))
			left = min(float64(limit), left+now.Sub(at).Minutes()*float64(limit))
			at = now
			allowed := tenants.Take("a", now) == nil
			if sure := left > 1.001 || left < 0.999; sure && allowed != (left >= 1) {
				t.Fatalf("limit %d, %v left: allowed %v", limit, left, allowed)
			}
			if allowed {
				left--
			}
		}
	}
}

func TestReserve(t *testing.T) {
	tests := []struct {
		name  string
		share float64
		pool  Pool
		want  bool
	}{
		{"no reserve, the last pod", 0, Pool{Free: 1, Size: 10, Held: 9}, true},
		{"above the reserve", 0.2, Pool{Free: 3, Size: 10, Held: 7}, true},
		{"at the reserve", 0.2, Pool{Free: 2, Size: 10, Held: 8}, false},
		{"the first of a tenant", 0.2, Pool{Free: 1, Size: 10, Held: 0}, true},
		{"a share of a pod is a pod", 0.01, Pool{Free: 1, Size: 10, Held: 1}, false},
		{"exact product", 0.1, Pool{Free: 4, Size: 30, Held: 1}, true},
		{"size not known", 0.5, Pool{Free: 4, Held: 1}, true},
		{"size not known, half", 0.5, Pool{Free: 1, Held: 1}, false},
	}
	for _, tt := range tests {
		err := Reserve(tt.share, tt.pool)
		var e *Error
		if (err == nil) != tt.want || err != nil && (!errors.As(err, &e) || e.Limit != PoolReserve) {
			t.Errorf("%s: %v, want allowed %v", tt.name, err, tt.want)
		}
	}
}

// A tenant that takes all it can get leaves the reserve, and others find it.
func TestOneTenantLeavesTheReserve(t *testing.T) {
	for size := 1; size <= 50; size++ {
		for _, share := range []float64{0.1, 0.25, 0.5, 0.9} {
			free, held := size, 0
			for Reserve(share, Pool{Free: free, Size: size, Held: held}) == nil && free > 0 {
				free, held = free-1, held+1
			}
			if least := int(share * float64(size)); free < least && held > 1 {
				t.Fatalf("size %d, share %v: %d left, want %d", size, share, free, least)
			}
			for others := 0; free > 0; others++ {
				if err := Reserve(share, Pool{Free: free, Size: size}); err != nil {
					t.Fatalf("size %d, share %v: newcomer %d: %v", size, share, others, err)
				}
				free--
			}
		}
	}
}
