// Package scale decides how many instances a function should have. It is pure:
// values and the present time in, a number with its reason out.
//
// A decision has three steps. The recommendation: 0 for a function that nobody
// uses, otherwise the maximum over its metrics (measure.go), at least 1. The
// bounds: [min_instances, max_instances]. The stabilisation: a downscale goes
// no further than the highest recommendation of the window, and a controller
// that has just begun to hear does not downscale at all, because it has not heard of
// everything yet. docs/scaling.md has the rules with worked examples, which the
// tests run.
package scale

import (
	"fmt"
	"time"

	skipperpb "skipper/proto"
)

// Policy is what all functions have in common.
type Policy struct {
	HeartbeatTimeout time.Duration // unused for longer: zero instances
	Stabilization    time.Duration // --hpa-downscale-stabilization; 0: none
	// Tolerance is the share by which CPU and memory may miss their target
	// before they ask for a change (--hpa-tolerance); 0: none.
	Tolerance float64
	// InitialReadiness is for how long after it became ready an instance's CPU
	// is ignored (--hpa-initial-readiness-delay); 0: not at all.
	InitialReadiness time.Duration
	// StartedAt is since when this controller hears what routers say (package
	// hearing), which may be later than its process began.
	StartedAt time.Time
}

// Protection is for how long a controller does not downscale after it has begun to
// hear.
func (p Policy) Protection() time.Duration { return max(p.Stabilization, p.HeartbeatTimeout) }

// Protected tells whether now lies in the protection period.
func (p Policy) Protected(now time.Time) bool { return now.Sub(p.StartedAt) < p.Protection() }

// Input is what is known about one function at one moment.
type Input struct {
	Scale   *skipperpb.Scale // bounds and targets; nil: {min 0, max 1}, no targets
	Oneshot bool             // one pod per request: never scaled
	// Current is the number of instances, draining ones not counted, and one
	// that is being replaced not counted beside its replacement.
	Current int
	// InFlight is the number of requests in progress on all instances.
	InFlight uint64
	// Metered says that CPU and memory can be had at all: there is a metrics
	// API. Without it they have no say.
	Metered bool
	// Samples are what the instances use, those that are being replaced among
	// them. Ignored unless Metered.
	Samples []Sample
	// LastUsed is the newest heartbeat or assignment; zero: never heard of.
	LastUsed time.Time
	// Trace is for the words of the decision only.
	Trace Trace
	// WindowMax is the highest recommendation of the stabilisation window
	// before this one; 0: none.
	WindowMax int
}

// Trace is what is known of a function's use, however long ago.
type Trace struct {
	// Heartbeat is when this controller last heard one, be it forgotten since;
	// zero: none since Since.
	Heartbeat time.Time
	// Since is when this controller began to listen for the function; zero: not
	// known.
	Since time.Time
	// Assigned is when the newest instance was claimed, or some were asked for;
	// zero: not known.
	Assigned time.Time
}

// Sample is what one instance uses.
type Sample struct {
	// ReadyAt is when the instance accepted its assignment; zero: not yet.
	ReadyAt time.Time
	// Measured says that the metrics API knows the instance; without it the
	// numbers mean nothing.
	Measured            bool
	CPUMilli, MemoryMiB uint32
}

// Decision is how many instances there should be, and why.
type Decision struct {
	Desired int
	// Recommended is the bounded value before stabilisation, to be recorded
	// in the window.
	Recommended int
	// Unclamped is the value before the bounds, for the record.
	Unclamped int
	Reason    skipperpb.ScaleReason
	Why       string // for people: the rule that decided, with its numbers
}

// Decide computes the desired count. Its result never undercuts
// min(in.Current, in.WindowMax) unless the function is unused, and never
// exceeds max_instances unless in.Current does. (While an instance is replaced
// there may be one more than it says: see MostWhileReplacing.)
func Decide(p Policy, in Input, now time.Time) Decision {
	if in.Oneshot {
		return Decision{
			Desired: in.Current, Recommended: in.Current, Unclamped: in.Current,
			Why: "oneshot: one pod per request, not scaled",
		}
	}
	if idle := now.Sub(in.LastUsed); in.LastUsed.IsZero() || idle > p.HeartbeatTimeout {
		return protect(p, in, unused(p, in.Trace, now), now)
	}
	return protect(p, in, stabilise(in, clamp(in.Scale, recommend(p, in, now))), now)
}

func unused(p Policy, t Trace, now time.Time) Decision {
	return Decision{
		Reason: skipperpb.ScaleReason_SCALE_REASON_HEARTBEAT_TIMEOUT,
		Why:    fmt.Sprintf("%s, %s; timeout %s", t.heartbeat(p.HeartbeatTimeout, now), t.assigned(), p.HeartbeatTimeout),
	}
}

// heartbeat tells silence after use from silence since a controller's start,
// which may only mean that the routers have not found it yet.
func (t Trace) heartbeat(timeout time.Duration, now time.Time) string {
	switch {
	case t.Heartbeat.IsZero() && t.Since.IsZero():
		return "no heartbeat known"
	case t.Heartbeat.IsZero():
		return "no heartbeat since this controller began to listen for the function at " + stamp(t.Since)
	case now.Sub(t.Heartbeat) <= timeout:
		return "no router reports it any more, the last heartbeat was at " + stamp(t.Heartbeat)
	}
	return "the last heartbeat was at " + stamp(t.Heartbeat)
}

func (t Trace) assigned() string {
	if t.Assigned.IsZero() {
		return "no assignment known"
	}
	return "the last assignment at " + stamp(t.Assigned)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// recommend takes the maximum over the metrics, at least 1. Of metrics that ask
// for the same the first one is named.
func recommend(p Policy, in Input, now time.Time) Decision {
	best := measure{want: 1, note: "in use, so at least 1"}
	if in.Current == 0 {
		best.reason = skipperpb.ScaleReason_SCALE_REASON_NO_READY_INSTANCES
	}
	for _, m := range [...]measure{inFlight(in), cpu(p, in, now), memory(p, in)} {
		if m.want > best.want {
			best = m
		}
	}
	return Decision{Unclamped: best.want, Reason: best.reason, Why: best.why()}
}

// Clamp puts n into the bounds of s. 0 stays 0: a function that is switched
// off is below any minimum.
func Clamp(s *skipperpb.Scale, n int) int {
	if n <= 0 {
		return 0
	}
	// The maximum goes last: should the two contradict each other, it holds.
	return min(max(n, int(s.GetMinInstances())), max(1, int(s.GetMaxInstances())))
}

// MostWhileReplacing is how many instances there may be while one of them is
// replaced: its replacement comes first, so one more than the maximum.
func MostWhileReplacing(s *skipperpb.Scale) int { return max(1, int(s.GetMaxInstances())) + 1 }

func clamp(s *skipperpb.Scale, d Decision) Decision {
	d.Recommended = Clamp(s, d.Unclamped)
	d.Desired = d.Recommended
	if d.Desired != d.Unclamped {
		d.Why = fmt.Sprintf("%s; wants %d, bounds [%d, %d]", d.Why, d.Unclamped, s.GetMinInstances(), max(1, s.GetMaxInstances()))
	}
	return d
}

// stabilise keeps a downscale above the highest recommendation of the window,
// never above the present count.
func stabilise(in Input, d Decision) Decision {
	if floor := min(in.WindowMax, in.Current); d.Desired < floor {
		d.Why = fmt.Sprintf("%s; held at %d by the highest recommendation of the window, %d", d.Why, floor, in.WindowMax)
		d.Desired = floor
	}
	return d
}

// protect keeps a controller that has just started from downscaling.
func protect(p Policy, in Input, d Decision, now time.Time) Decision {
	if d.Desired >= in.Current || !p.Protected(now) {
		return d
	}
	d.Why = fmt.Sprintf("%s; wants %d, held at %d: controller hears what routers say for %s of %s", d.Why, d.Desired, in.Current,
		now.Sub(p.StartedAt).Round(time.Second), p.Protection())
	d.Desired = in.Current
	return d
}
