package inflight

import (
	"cmp"
	"time"
)

// overlap is how much older than the newest word another one may be and still
// count, if its stream is open: two Envoys with one node id each report every
// second. One that has moved to another stream does not report on the old one.
const overlap = 5 * time.Second

// source is where a word about an Envoy came from: a stream here, or another
// replica.
type source struct {
	sender string // IP of the other replica; empty: a stream here
	stream uint64
}

// word is what a source last said of an Envoy. Immutable.
type word struct {
	received  time.Time
	connected bool
	inFlight  map[string]uint32 // by pod UID, without zeros
	unknown   int               // addresses that no pod has
}

// words are all that count of one Envoy, by source. It is plain state for one
// owner, and never empty after the first put.
type words map[source]word

// put replaces what the source said, and lets go of words that others outdate.
func (w words) put(s source, said word) {
	w[s] = said
	best := w.newest()
	for other, old := range w {
		if other != best && (!old.connected || w[best].received.Sub(old.received) > overlap) {
			delete(w, other)
		}
	}
}

// newest is the source of the newest word; of equally new ones always the same.
func (w words) newest() source {
	var best source
	first := true
	for s := range w {
		if first || w.compare(s, best) > 0 {
			best, first = s, false
		}
	}
	return best
}

func (w words) compare(a, b source) int {
	return cmp.Or(w[a].received.Compare(w[b].received), cmp.Compare(a.sender, b.sender), cmp.Compare(a.stream, b.stream))
}

// expired says that nobody has heard the Envoy for longer than expiry.
func (w words) expired(now time.Time, expiry time.Duration) bool {
	return now.Sub(w[w.newest()].received) > expiry
}

// inUse says that the Envoy is connected, or had something in progress when it
// was last heard.
func (w words) inUse() bool {
	for _, said := range w {
		if said.connected || len(said.inFlight) > 0 || said.unknown > 0 {
			return true
		}
	}
	return false
}

// load is what counts of the Envoy.
func (w words) load(node string) Load {
	l := Load{Node: node, Words: make([]map[string]uint32, 0, len(w))}
	for _, said := range w {
		l.Words = append(l.Words, said.inFlight)
		if l.Received.IsZero() || said.received.Before(l.Received) {
			l.Received = said.received
		}
	}
	return l
}

// here is what the streams of this replica say of the Envoy; false where
// another replica, or nobody, has the last word.
func (w words) here() (said word, ok bool) {
	for s, one := range w {
		if s.sender != "" {
			continue
		}
		if ok {
			one = both(said, one)
		}
		said, ok = one, true
	}
	return said, ok
}

// both is the greater of two words, for what nobody may overlook, and as old
// as the older one.
func both(a, b word) word {
	if b.received.Before(a.received) {
		a, b = b, a
	}
	out := word{received: a.received, connected: a.connected || b.connected, inFlight: map[string]uint32{}, unknown: max(a.unknown, b.unknown)}
	for _, m := range []map[string]uint32{a.inFlight, b.inFlight} {
		for uid, n := range m {
			out.inFlight[uid] = max(out.inFlight[uid], n)
		}
	}
	return out
}
