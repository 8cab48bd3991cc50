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

// Progress is how far the drain of a pod is.
type Progress struct {
	// Acknowledged says that every router is known to have heard of it.
	Acknowledged bool
	// InFlight are the requests in progress, by reports that are younger than
	// the acknowledgement; without one it means nothing.
	InFlight InFlight
}

// InFlight is what is known of the requests in progress on a pod.
type InFlight struct {
	Requests int
	// Known says that Requests is what everybody said who sends requests.
	Known bool
}

// Limits of a drain.
type Limits struct {
	// Timeout is how long after its begin a drain ends at the latest, with
	// requests in progress or without.
	Timeout time.Duration
}

// Next decides what becomes of a claimed pod that is draining or dead; any
// other pod waits. A drain that began in the future began at a clock that was
// wrong, or was edited: it begins anew.
func Next(p pool.Pod, how Progress, now time.Time, limits Limits) Decision {
	switch state := p.State(); {
	case state == pool.Draining:
		return nextOfDrain(p, how, now, limits)
	case state == pool.Dead && p.Marked && p.Finished():
		return Decision{Delete, "pod has failed or finished"}
	case state == pool.Dead && p.Marked:
		// It may still be answering; Kubernetes ends it in its own time.
		return Decision{Wait, "Kubernetes is evicting the pod"}
	default:
		return Decision{Wait, "pod is " + state.String()}
	}
}

func nextOfDrain(p pool.Pod, how Progress, now time.Time, limits Limits) Decision {
	age := now.Sub(p.DrainingAt)
	switch {
	case p.DrainingAt.IsZero():
		return Decision{Annotate, "time of the drain's begin cannot be read"}
	case age < -limits.Timeout:
		return Decision{Annotate, "time of the drain's begin is in the future"}
	case age >= limits.Timeout:
		return Decision{Delete, fmt.Sprintf("drain timeout of %s has passed, %s", limits.Timeout, how)}
	case how.Acknowledged && how.InFlight.Known && how.InFlight.Requests == 0:
		return Decision{Delete, "drained: " + how.String()}
	}
	return Decision{Wait, "draining, " + how.String()}
}

// String is for reasons.
func (p Progress) String() string {
	if !p.Acknowledged {
		return "not every router is known to have heard of it"
	}
	return p.InFlight.String()
}

// String is for reasons.
func (i InFlight) String() string {
	if !i.Known {
		return "requests in progress unknown"
	}
	return fmt.Sprintf("%d requests in progress", i.Requests)
}
