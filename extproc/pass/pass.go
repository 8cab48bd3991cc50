// Package pass decides what becomes of a request that Envoy could not deliver to
// the instance that it was told. Everything here is pure.
package pass

import (
	"slices"
	"strconv"
	"time"

	"skipper/proto/reason"
)

// Cause is why Envoy asks again.
type Cause uint8

// The causes.
const (
	// Unknown: Envoy has not heard of the instance yet, or not any more.
	Unknown Cause = iota
	// Failed: the instance was tried. It took no connection, ended it before the
	// request was sent, or said that the request is meant for another pod.
	Failed
)

// CauseOf reads x-envoy-attempt-count of a later pass: an attempt that found no
// host is not counted. What cannot be read is no reason to suspect an instance.
func CauseOf(attempts []byte) Cause {
	if n, err := strconv.ParseUint(string(attempts), 10, 32); err == nil && n > 1 {
		return Failed
	}
	return Unknown
}

func (c Cause) String() string {
	if c == Failed {
		return "failed"
	}
	return "unknown"
}

// Limits of one request. All are required.
type Limits struct {
	// Passes is how often a request is sent to an instance at most, the first
	// time included (contract: --max-round-trip-attempts, 6).
	Passes int
	// Backoff is the first pause before the same instance is tried again; it
	// doubles up to MaxBackoff (100 ms and 5 s).
	Backoff, MaxBackoff time.Duration
}

// Pause is the n-th pause, n counting from 1.
func (l Limits) Pause(n int) time.Duration {
	d := l.Backoff
	for range n - 1 {
		d = min(2*d, l.MaxBackoff)
	}
	return min(d, l.MaxBackoff)
}

// State is what is known when Envoy asks again.
type State struct {
	Cause Cause
	// Passes is how often the request was sent to an instance so far.
	Passes int
	// Unknown is how often in a row Envoy did not know the present instance,
	// this time included.
	Unknown int
	// Present is the UID of the instance that the request was sent to last;
	// empty where it has none.
	Present string
	// Usable says that Present may still be used.
	Usable bool
	// Tried are the UIDs that failed this request, Present among them where it did.
	Tried []string
	// Known are the UIDs that the table offers.
	Known []string
	// Deadline is until when the request may wait.
	Deadline time.Time
}

// Action is what to do.
type Action uint8

// The actions.
const (
	Refuse Action = iota // answer 503
	Same                 // send it to the same instance once more, after Wait
	Other                // send it to another instance that the table offers
	Ask                  // ask the controller for one that was not tried
)

func (a Action) String() string { return [...]string{"refuse", "same", "other", "ask"}[a] }

// Decision is what to do, and why.
type Decision struct {
	Action Action
	// Wait is set with Same and never passes the deadline.
	Wait time.Duration
	// Reason is set with Refuse.
	Reason reason.Reason
	// Why is for people: logs and the body of a refusal.
	Why string
}

// Decide says what to do. An instance that Envoy does not know is waited for: its
// endpoint is on its way. It is not held against the instance, but once half of
// all passes went into that, another instance is welcome, because Envoy may have
// heard of the end of the pod before we did. An instance that failed is not tried
// again by this request while there is another.
func Decide(s State, l Limits, now time.Time) Decision {
	left := s.Deadline.Sub(now)
	switch {
	case s.Passes >= l.Passes:
		return s.refuse("it was sent " + strconv.Itoa(s.Passes) + " times, which is the most allowed")
	case s.Cause == Unknown && s.Usable && s.Unknown <= l.Passes/2 && left > 0:
		return s.again(l, left)
	case s.offersAnother():
		return Decision{Action: Other, Why: "there is another instance"}
	case left <= 0:
		return s.refuse("it may wait no longer")
	case s.Cause == Unknown && s.Usable:
		return s.again(l, left)
	}
	return Decision{Action: Ask, Why: "no other instance is known"}
}

func (s *State) again(l Limits, left time.Duration) Decision {
	return Decision{Action: Same, Wait: min(l.Pause(s.Unknown), left), Why: "Envoy will hear of the instance soon"}
}

func (s *State) refuse(why string) Decision {
	if s.Cause == Failed {
		return Decision{Action: Refuse, Reason: reason.ConnectFailed, Why: "the function's instances took no connection: " + why}
	}
	return Decision{Action: Refuse, Reason: reason.NoInstance, Why: "the function's instance cannot be reached yet: " + why}
}

func (s *State) offersAnother() bool {
	return slices.ContainsFunc(s.Known, func(uid string) bool {
		return uid != s.Present && !slices.Contains(s.Tried, uid)
	})
}
