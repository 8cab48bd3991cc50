package withdraw

import (
	"slices"
	"time"
)

// gateway is what an extproc says of where it is.
type gateway struct {
	envoy string    // node id of the Envoy that it serves
	ip    string    // of the pod that both are in; empty: unknown
	began time.Time // the process, at the latest; zero: it does not say
	heard time.Time // its newest word
}

// succession is whether an extproc has taken the place of one that is away.
type succession struct {
	ended bool
	why   string
}

// tardy is how much later than it was said a last word may be heard: it passes
// through another replica, or the end of a connection is noticed late.
const tardy = 5 * time.Second

// succeed decides whether next took the place of before, which was last known to
// be there at the given time. Two gateways may have been given one node id by
// mistake. The one that cannot be reached may be at work all the same, so that
// the other's word must not end it: that is only for who is in the same pod, as
// far as the address tells, and began after the other was last there. A pod has
// one extproc at a time but for an orderly restart, which ends by a goodbye.
func succeed(next, before gateway, last time.Time) succession {
	switch {
	case next.envoy == "" || next.envoy != before.envoy:
		return succession{why: "it serves another Envoy"}
	case next.ip == "" || next.ip != before.ip:
		return succession{why: "it is in another pod: two gateways have the same Envoy node id, or a pod of the same name was made anew"}
	case next.began.IsZero():
		return succession{why: "it does not say since when it runs"}
	case !next.began.After(last.Add(-tardy)):
		return succession{why: "it was there before the other fell silent: two gateways have the same Envoy node id and address"}
	}
	return succession{ended: true, why: "it began in the same pod after the other fell silent"}
}

// kept is an extproc that is away and remains so, although another one names the
// same Envoy.
type kept struct{ node, why string }

// serve takes in where an extproc is, and which Envoy it serves. It returns those
// that were there before it and have ended, and those, once each, that may be at
// work although another one names their Envoy.
func (b *book) serve(node string, g gateway, now time.Time) (ended []string, twins []kept) {
	if _, bye := b.departed[node]; bye || !b.place(node, g, now) {
		return nil, nil // its last words arrived late, or there are too many
	}
	for other, l := range b.lost {
		if other == node || b.gateways[other].envoy != g.envoy {
			continue
		}
		switch s := succeed(b.gateways[node], b.gateways[other], b.lastOf(other, l)); {
		case s.ended:
			ended = append(ended, other)
		case !l.kept:
			l.kept = true
			twins = append(twins, kept{other, s.why})
		}
	}
	slices.Sort(ended)
	for _, other := range ended {
		b.goodbye(other, now)
	}
	return ended, twins
}

// place remembers where an extproc is; false where that is too much. Of what it
// says of its begin, over time, the earliest is the least late.
func (b *book) place(node string, g gateway, now time.Time) bool {
	said, known := b.gateways[node]
	if !known && len(b.gateways) >= maxLost {
		return false
	}
	if known && !said.began.IsZero() && (g.began.IsZero() || said.began.Before(g.began)) {
		g.began = said.began
	}
	g.heard = now
	b.gateways[node] = g
	return true
}

// lastOf is when one that is away was last there, by its stream or its heartbeats.
func (b *book) lastOf(node string, l *lostNode) time.Time {
	if heard := b.gateways[node].heard; heard.After(l.last) {
		return heard
	}
	return l.last
}
