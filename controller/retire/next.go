package retire

import (
	"fmt"
	"time"

	"skipper/controller/pool"
)

// Action is what to do with a pod on its way out.
type Action int

// The actions.
const (
	// Wait: nothing yet; look again.
	Wait Action = iota
	// Annotate: write the time since when it drains, because it cannot be read.
	Annotate
	// Delete the pod.
	Delete
)

// Decision is an Action with its reason.
type Decision struct {
	Action Action
	Reason string
}

// InFlight is what is known of the requests in progress on a pod.
type InFlight struct {
	Requests int
	// Known says that Requests is what every router said, recently enough to
	// have heard of the drain.
	Known bool
}

// Limits of a drain.
type Limits struct {
	// Settle is how long after its begin a drain cannot end: until routers have
	// heard of it and have reported what they still had.
	Settle time.Duration
	// Timeout is how long after its begin a drain ends at the latest, with
	// requests in progress or without.
	Timeout time.Duration
}

// Next decides what becomes of a claimed pod that is draining or dead; any
// other pod waits. A drain that began in the future began at a clock that was
// wrong, or was edited: it begins anew.
func Next(p pool.Pod, inFlight InFlight, now time.Time, limits Limits) Decision {
	switch state := p.State(); {
	case state == pool.Draining:
		return nextOfDrain(p, inFlight, now, limits)
	case state == pool.Dead && p.Marked && p.Finished():
		return Decision{Delete, "pod has failed or finished"}
	case state == pool.Dead && p.Marked:
		// It may still be answering; Kubernetes ends it in its own time.
		return Decision{Wait, "Kubernetes is evicting the pod"}
	default:
		return Decision{Wait, "pod is " + state.String()}
	}
}

func nextOfDrain(p pool.Pod, inFlight InFlight, now time.Time, limits Limits) Decision {
	age := now.Sub(p.DrainingAt)
	switch {
	case p.DrainingAt.IsZero():
		return Decision{Annotate, "time of the drain's begin cannot be read"}
	case age < -limits.Timeout:
		return Decision{Annotate, "time of the drain's begin is in the future"}
	case age >= limits.Timeout:
		return Decision{Delete, fmt.Sprintf("drain timeout of %s has passed, %s", limits.Timeout, inFlight)}
	case age < limits.Settle:
		return Decision{Wait, "drain has only begun"}
	case inFlight.Known && inFlight.Requests == 0:
		return Decision{Delete, "drained: no requests in progress"}
	}
	return Decision{Wait, "draining, " + inFlight.String()}
}

// String is for reasons.
func (i InFlight) String() string {
	if !i.Known {
		return "requests in progress unknown"
	}
	return fmt.Sprintf("%d requests in progress", i.Requests)
}
