package soak

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Soon is within what time an address that changed its tenant counts as reused
// at once.
const Soon = time.Second

// kept is how many tenures of an address are remembered, the last ones.
const kept = 6

// Tenure is the time that one pod had an address.
type Tenure struct {
	UID, Pod, Tenant string // no tenant: it was never assigned
	From, Assigned   time.Time
	Until            time.Time // zero: still
}

func (t Tenure) String() string {
	at := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return t.Format("15:04:05.000")
	}
	return fmt.Sprintf("%s %s tenant %q from %s assigned %s until %s", t.Pod, t.UID, t.Tenant, at(t.From), at(t.Assigned), at(t.Until))
}

// Reuse counts how addresses changed hands.
type Reuse struct {
	// Pods that got an address that another had before, and those of them that
	// got it within Soon.
	Pods, PodsSoon int
	// Tenants whose pod has an address that another tenant had before, and
	// those of them that were assigned within Soon after the other's end.
	Tenants, TenantsSoon int
}

// Order is which of the free addresses is given next.
type Order bool

// The orders.
const (
	// FreedLast reuses addresses at once.
	FreedLast Order = false
	// FreedFirst reuses none that it need not.
	FreedFirst Order = true
)

// Addresses is a range of addresses, each of which one pod has at a time. Safe
// for concurrent use.
type Addresses struct {
	order Order

	mu sync.Mutex
	// The fields below are guarded by mu.
	free  []string            // the one that was freed last is the last
	past  map[string][]Tenure // by address, oldest first
	reuse Reuse
}

// inBlock is how many addresses there are that differ in the last byte alone.
const inBlock = 250

// NewAddresses has n addresses, 127.77.0.1 and up; n is at most 60,000.
func NewAddresses(n int, order Order) *Addresses {
	a := &Addresses{order: order, past: map[string][]Tenure{}}
	for i := n - 1; i >= 0; i-- {
		a.free = append(a.free, fmt.Sprintf("127.77.%d.%d", i/inBlock, 1+i%inBlock))
	}
	return a
}

// Take gives the pod an address; none is false.
func (a *Addresses) Take(pod, uid string, now time.Time) (string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.free) == 0 {
		return "", false
	}
	i := len(a.free) - 1
	if a.order == FreedFirst {
		i = 0
	}
	ip := a.free[i]
	a.free = slices.Delete(a.free, i, i+1)
	past := a.past[ip]
	if n := len(past); n > 0 {
		a.reuse.Pods++
		if now.Sub(past[n-1].Until) <= Soon {
			a.reuse.PodsSoon++
		}
	}
	a.past[ip] = append(past[max(0, len(past)-kept+1):], Tenure{UID: uid, Pod: pod, From: now})
	return ip, true
}

// Assigned notes the tenant of the pod that has the address.
func (a *Addresses) Assigned(ip, tenant string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	past := a.past[ip]
	last := &past[len(past)-1]
	if last.Tenant != "" {
		return // the same assignment again
	}
	last.Tenant, last.Assigned = tenant, now
	for i := len(past) - 2; i >= 0; i-- {
		before := past[i]
		if before.Tenant == "" {
			continue // nobody's table has it
		}
		if before.Tenant != tenant {
			a.reuse.Tenants++
			if now.Sub(before.Until) <= Soon {
				a.reuse.TenantsSoon++
			}
		}
		return
	}
}

// Release takes the address back; it may be given at once.
func (a *Addresses) Release(ip string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	past := a.past[ip]
	past[len(past)-1].Until = now
	a.free = append(a.free, ip)
}

// Past lists the last pods that had the address, oldest first.
func (a *Addresses) Past(ip string) []Tenure {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]Tenure(nil), a.past[ip]...)
}

// Reuse counts since the start.
func (a *Addresses) Reuse() Reuse {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reuse
}
