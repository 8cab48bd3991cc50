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
	// Cut says that the deletion ends a drain before it is known to be done.
	Cut bool
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

// Witnesses are those who know how far a drain is. Both are required, must be
// quick, and may be called at the same time.
type Witnesses struct {
	// Acknowledged says since when every router is known to have heard that the
	// pod with the UID drains; false while one is not.
	Acknowledged func(uid string) (since time.Time, ok bool)
	// InFlightSince is the number of requests in progress on the pod, and whether
	// it is known by reports that are all younger than since.
	InFlightSince func(uid string, since time.Time) (n int, known bool, asOf time.Time)
}

// answersUsed is how long a router may take to send a request to an instance
// that it was told of just before everybody had forgotten it.
const answersUsed = time.Second

// Progress is how far the drain of the pod is. What is in progress counts by
// reports from after everybody had heard of the drain.
func (w Witnesses) Progress(p pool.Pod) Progress {
	at, ok := w.Acknowledged(p.UID)
	if !ok {
		return Progress{}
	}
	n, known, _ := w.InFlightSince(p.UID, at.Add(answersUsed))
	return Progress{Acknowledged: true, InFlight: InFlight{Requests: n, Known: known}}
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
		return Decision{Action: Delete, Reason: "pod has failed or finished"}
	case state == pool.Dead && p.Marked:
		// It may still be answering; Kubernetes ends it in its own time.
		return Decision{Action: Wait, Reason: "Kubernetes is evicting the pod"}
	default:
		return Decision{Action: Wait, Reason: "pod is " + state.String()}
	}
}

func nextOfDrain(p pool.Pod, how Progress, now time.Time, limits Limits) Decision {
	age := now.Sub(p.DrainingAt)
	switch {
	case p.DrainingAt.IsZero():
		return Decision{Action: Annotate, Reason: "time of the drain's begin cannot be read"}
	case age < -limits.Timeout:
		return Decision{Action: Annotate, Reason: "time of the drain's begin is in the future"}
	case age >= limits.Timeout:
		return Decision{Action: Delete, Reason: fmt.Sprintf("drain timeout of %s has passed, %s", limits.Timeout, how), Cut: true}
	case how.Acknowledged && how.InFlight.Known && how.InFlight.Requests == 0:
		return Decision{Action: Delete, Reason: "drained: " + how.String()}
	}
	return Decision{Action: Wait, Reason: "draining, " + how.String()}
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
