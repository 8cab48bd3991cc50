package supervise

import (
	"time"

	skipperpb "skipper/proto"
)

// force is which configuration (metadata and scale) of a function is in force.
// Callers may disagree for a while, when one is rolled out after the other: a
// new configuration takes over once nobody has spoken of the old one for the
// grace period. It is pure: it has no clock, and who uses it guards it.
type force struct {
	current  *skipperpb.Function // nil: nothing heard of yet
	spokenAt time.Time           // when somebody last spoke of current
	// foundAt is when the instance was assigned that current was read from;
	// zero once somebody has spoken.
	foundAt time.Time

	rival      *skipperpb.Function // another one that is spoken of; nil: none
	rivalSince time.Time           // since when there is one
	rivalAt    time.Time           // when somebody last spoke of it
	warned     bool                // of this contest
}

// outcome is what a word of a caller has led to.
type outcome int

const (
	unchanged outcome = iota
	takenOver         // current is another one now
	contested         // callers have disagreed for the grace period: to be said once
)

// found takes the configuration of the newest instance for the one in force,
// until a caller speaks.
func (c *force) found(f *skipperpb.Function, assignedAt, now time.Time) {
	switch {
	case c.current == nil:
		c.current, c.foundAt, c.spokenAt = f, assignedAt, now
	case c.rival == nil && !c.foundAt.IsZero() && assignedAt.After(c.foundAt):
		c.current, c.foundAt = f, assignedAt
	}
}

// heard is a caller that uses f.
func (c *force) heard(f *skipperpb.Function, grace time.Duration, now time.Time) outcome {
	switch {
	case c.current == nil:
		c.take(f, now)
		return unchanged
	case sameConfiguration(c.current, f):
		c.spokenAt, c.foundAt = now, time.Time{}
	default:
		if c.rival == nil {
			c.rivalSince = now
		}
		c.rival, c.rivalAt = f, now
	}
	return c.settle(grace, now)
}

// settle is what the passing of time leads to.
func (c *force) settle(grace time.Duration, now time.Time) outcome {
	switch {
	case c.rival == nil:
		return unchanged
	case now.Sub(c.spokenAt) >= grace && c.rivalAt.After(c.spokenAt):
		c.take(c.rival, c.rivalAt)
		return takenOver
	case now.Sub(c.rivalAt) >= grace:
		c.rival, c.warned = nil, false
		return unchanged
	case !c.warned && now.Sub(c.rivalSince) >= grace:
		c.warned = true
		return contested
	}
	return unchanged
}

func (c *force) take(f *skipperpb.Function, spokenAt time.Time) {
	*c = force{current: f, spokenAt: spokenAt}
}

// sameConfiguration compares what is not identity.
func sameConfiguration(a, b *skipperpb.Function) bool {
	return a == b || (a.GetMetadata() == b.GetMetadata() && sameScale(a.GetScale(), b.GetScale()))
}

func sameScale(a, b *skipperpb.Scale) bool {
	return a == b ||
		(a.GetMinInstances() == b.GetMinInstances() && a.GetMaxInstances() == b.GetMaxInstances() &&
			a.GetTargetCpuUsageMilli() == b.GetTargetCpuUsageMilli() &&
			a.GetTargetMemoryUsageMib() == b.GetTargetMemoryUsageMib() &&
			a.GetTargetInFlightRequests() == b.GetTargetInFlightRequests())
}
