package table

import "time"

// mark is what is held against one pod. Immutable.
type mark struct {
	// sign is when a request last failed to reach the pod.
	sign time.Time
	// until is when its quarantine ends; zero where it never had one.
	until time.Time
}

// failed is the mark after one more failure: the second one within the time that
// a quarantine lasts begins a quarantine, or prolongs it. One failure alone may
// be a connection that closed at a bad moment.
func (m *mark) failed(now time.Time, quarantine time.Duration) *mark {
	if m == nil || now.Sub(m.sign) > quarantine {
		return &mark{sign: now}
	}
	return &mark{sign: now, until: now.Add(quarantine)}
}

func (m *mark) quarantined(now time.Time) bool { return m != nil && now.Before(m.until) }

// Fail notes that a request did not reach the pod. It reports whether the pod
// came into quarantine by that, for the given time.
func (i *Instance) Fail(now time.Time, quarantine time.Duration) bool {
	i.count.failures.Add(1)
	for {
		old := i.count.mark.Load()
		next := old.failed(now, quarantine)
		if i.count.mark.CompareAndSwap(old, next) {
			return next.quarantined(now) && !old.quarantined(now)
		}
	}
}

// Serve notes that a request reached the pod which was sent there at the given
// time: what was held against the pod before is forgotten.
func (i *Instance) Serve(sent time.Time) {
	old := i.count.mark.Load()
	if old != nil && sent.After(old.sign) {
		i.count.mark.CompareAndSwap(old, nil) // lost to a newer failure, which stays
	}
}

// Quarantined reports whether requests should rather go elsewhere.
func (i *Instance) Quarantined(now time.Time) bool { return i.count.mark.Load().quarantined(now) }
