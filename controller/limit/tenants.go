// Package limit keeps one tenant from taking what others need: how many pods
// it may claim per minute, and what share of a pool it must leave.
//
// All of it is decided from values and a time given; only Tenants has state,
// and that is bounded.
package limit

import (
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// DefaultTenants is how many tenants are remembered: ten times the functions
// that a controller is made for. One that is forgotten begins anew.
const DefaultTenants = 100_000

// Name of a limit, as its flag.
type Name string

// The limits.
const (
	TenantClaimsPerMinute Name = "tenant-claims-per-minute"
	PoolReserve           Name = "pool-reserve"
)

// Error says that a limit is reached.
type Error struct {
	Limit Name
	// Message says what happened and what to do; meant for callers.
	Message string
	// RetryAfter is when another try makes sense; 0 where that is not known.
	RetryAfter time.Duration
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// Tenants counts the claims of each tenant. The allowance of a minute may be
// used at once, and comes back evenly. Safe for concurrent use.
type Tenants struct {
	perMinute uint32

	mu      sync.Mutex
	buckets *lru.Cache[string, *rate.Limiter] // guarded by mu; nil without a limit
}

// NewTenants allows each tenant perMinute claims; 0 is no limit. It remembers
// size tenants, 0 is DefaultTenants.
func NewTenants(perMinute uint32, size int) *Tenants {
	t := &Tenants{perMinute: perMinute}
	if perMinute == 0 {
		return t
	}
	if size <= 0 {
		size = DefaultTenants
	}
	// The only error is a size below 1.
	t.buckets, _ = lru.New[string, *rate.Limiter](size)
	return t
}

// Check says whether the tenant may claim a pod at now, without counting one.
// The error is a *Error.
func (t *Tenants) Check(tenant string, now time.Time) error {
	return t.use(tenant, now, false)
}

// Take is Check, and counts a claim where it may.
func (t *Tenants) Take(tenant string, now time.Time) error {
	return t.use(tenant, now, true)
}

// Saw counts a claim that was made elsewhere, whether it was allowed or not.
func (t *Tenants) Saw(tenant string, now time.Time) {
	if t.perMinute == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.bucketLocked(tenant, now)
	// A reservation may go below zero, unlike a refusal; but not without end.
	if b.TokensAt(now) > -float64(t.perMinute) {
		b.ReserveN(now, 1)
	}
}

func (t *Tenants) use(tenant string, now time.Time, count bool) error {
	if t.perMinute == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.bucketLocked(tenant, now)
	missing := 1 - b.TokensAt(now)
	if missing > 0 {
		return t.refusal(tenant, time.Duration(missing/float64(b.Limit())*float64(time.Second)))
	}
	if count {
		b.AllowN(now, 1)
	}
	return nil
}

func (t *Tenants) bucketLocked(tenant string, now time.Time) *rate.Limiter {
	if b, ok := t.buckets.Get(tenant); ok {
		return b
	}
	b := rate.NewLimiter(rate.Limit(float64(t.perMinute)/60), int(t.perMinute))
	b.AllowN(now, 0) // its clock begins now
	t.buckets.Add(tenant, b)
	return b
}

func (t *Tenants) refusal(tenant string, after time.Duration) *Error {
	return &Error{
		Limit: TenantClaimsPerMinute, RetryAfter: after,
		Message: fmt.Sprintf("tenant %.63q has claimed %d pods in a minute: try again in %s, or raise --%s of the controller",
			tenant, t.perMinute, after.Round(time.Millisecond), TenantClaimsPerMinute),
	}
}
