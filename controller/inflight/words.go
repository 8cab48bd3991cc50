package inflight

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// overlap is how much older than the newest word another one may be and still
// count, if its stream is open: two Envoys with one node id each report every
// second. One that has moved to another stream does not report on the old one.
const overlap = 5 * time.Second

// provenAfter is how long after a source began another one must have spoken to be of
// another Envoy: an Envoy reports on one stream at a time. Words that came
// through another replica are dated earlier by up to transit.
const provenAfter = transit + time.Second

// source is where a word about an Envoy came from: a stream here, or another
// replica.
type source struct {
	sender string // IP of the other replica; empty: a stream here
	stream uint64
}

// word is what a source last said of an Envoy. Immutable.
type word struct {
	began     time.Time // when the source's first word came; set by put
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
	said.began = said.received
	if before, known := w[s]; known && before.began.Before(said.began) {
		said.began = before.began
	}
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
	l := Load{Node: node, Words: make([]map[string]uint32, 0, 1)}
	for _, one := range w.envoys(func(source) bool { return true }) {
		l.Words = append(l.Words, one.inFlight)
		if l.Received.IsZero() || one.received.Before(l.Received) {
			l.Received = one.received
		}
	}
	return l
}

// here is what the streams of this replica say of the Envoy; false where
// another replica, or nobody, has the last word.
func (w words) here() (said word, ok bool) {
	for _, one := range w.envoys(func(s source) bool { return s.sender == "" }) {
		if ok {
			one = both(said, one, add)
		}
		said, ok = one, true
	}
	return said, ok
}

// envoys are the words of those sources that may be of one Envoy, joined, for
// each of the Envoys that have the node id by mistake; one of them usually.
// Those in which nothing proves that they are two count once: the greatest
// number holds, so that nothing in progress is overlooked.
func (w words) envoys(of func(source) bool) []word {
	if len(w) == 1 {
		for s, one := range w {
			if of(s) {
				return []word{one}
			}
		}
		return nil
	}
	all := make([]source, 0, len(w))
	for s := range w {
		if of(s) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b source) int {
		return cmp.Or(w[a].began.Compare(w[b].began), cmp.Compare(a.sender, b.sender), cmp.Compare(a.stream, b.stream))
	})
	var out []word
	var last []word // of each, the source that began last
	for _, s := range all {
		i := slices.IndexFunc(last, func(earlier word) bool { return !twins(earlier, w[s]) })
		if i < 0 {
			out, last = append(out, w[s]), append(last, w[s])
			continue
		}
		out[i], last[i] = both(out[i], w[s], greater), w[s]
	}
	return out
}

// twins says that two sources are of two Envoys: the earlier one has spoken
// since the later one began.
func twins(earlier, later word) bool { return earlier.received.Sub(later.began) > provenAfter }

func greater(a, b uint32) uint32 { return max(a, b) }

func add(a, b uint32) uint32 { return uint32(min(uint64(a)+uint64(b), math.MaxUint32)) } //nolint:gosec // bounded beside

// both joins two words, number by number, and is as old as the older one.
func both(a, b word, join func(a, b uint32) uint32) word {
	if b.received.Before(a.received) {
		a, b = b, a
	}
	out := word{began: a.began, received: a.received, connected: a.connected || b.connected, inFlight: maps.Clone(a.inFlight), unknown: max(a.unknown, b.unknown)}
	if out.inFlight == nil {
		out.inFlight = map[string]uint32{}
	}
	for uid, n := range b.inFlight {
		out.inFlight[uid] = join(out.inFlight[uid], n)
	}
	return out
}
