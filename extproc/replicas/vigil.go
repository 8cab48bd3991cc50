package replicas

import "time"

// DefaultProbe is the time between two probes of a connection. With
// deadRounds, a replica that falls silent is left 0.6 to 0.8 s later, which
// leaves time to ask another one within the second; a replica that does not get
// to run for that long is of no use to those who wait.
const DefaultProbe = 200 * time.Millisecond

const (
	// deadRounds is how many rounds in a row without any answer end a connection.
	deadRounds = 3
	// openProbes is how many probes wait for an answer at most: the second
	// makes TCP notice sooner that the first was lost on the way.
	openProbes = 2
	// lateShare is the part of a round by which it may end late and still
	// count: a process that is not run for longer cannot know what it missed.
	lateShare = 2
)

// round is what was seen in one round: from a written probe until a probe
// interval later.
type round struct {
	heard  bool          // anything has arrived
	probed bool          // a probe was written at its begin
	stuck  bool          // a write has hung from begin to end
	late   time.Duration // how much longer than the interval it took
}

// vigil decides when a silent connection counts as dead. Its zero value begins.
type vigil struct {
	probes int // unanswered
	missed int // rounds in a row that count against the peer
}

// wantsProbe tells whether to write a probe in the next round.
func (v vigil) wantsProbe() bool { return v.probes < openProbes }

// verdict is what follows from a round.
type verdict struct {
	dead bool
	why  string
}

// after returns the vigil after a round of that length. Only what is surely the
// peer's fault counts: it was asked, and we were awake to hear the answer.
func (v vigil) after(r round, length time.Duration) (vigil, verdict) {
	if r.heard {
		return vigil{}, verdict{why: "something has arrived"}
	}
	if r.probed {
		v.probes++
	}
	switch {
	case v.probes == 0 && !r.stuck:
		return v, verdict{why: "nothing was asked"}
	case r.late > length/lateShare:
		return v, verdict{why: "we were not run in time"}
	}
	v.missed++
	if v.missed < deadRounds {
		return v, verdict{why: "no answer yet"}
	}
	return v, verdict{dead: true, why: "no sign of life"}
}
