package inflight

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var (
	here1, here2 = source{stream: 1}, source{stream: 2}
	replicaB     = source{sender: "10.0.0.2"}
)

func said(after time.Duration, connected bool, n uint32) word {
	return word{received: start.Add(after), connected: connected, inFlight: on{"p": n}}
}

func TestTheNewestWordCounts(t *testing.T) {
	type step struct {
		source
		word
	}
	tests := []struct {
		name  string
		steps []step
		want  uint64
		left  int
	}{
		{"a report replaces the one before", []step{{here1, said(0, true, 3)}, {here1, said(1e9, true, 1)}}, 1, 1},
		{"the last one of an ended stream", []step{{here1, said(0, true, 3)}, {here1, said(0, false, 3)}}, 3, 1},
		{"reconnected here", []step{{here1, said(0, false, 3)}, {here2, said(1e9, true, 1)}}, 1, 1},
		{"reconnected elsewhere", []step{{here1, said(0, false, 3)}, {replicaB, said(6e9, true, 1)}}, 1, 1},
		{"the former replica repeats itself", []step{{replicaB, said(6e9, true, 1)}, {here1, said(0, false, 3)}}, 1, 1},
		{"half open", []step{{here1, said(0, true, 3)}, {here2, said(overlap+1, true, 1)}}, 1, 1},
		{"perhaps two Envoys of one name", []step{{here1, said(0, true, 3)}, {here2, said(1e9, true, 1)}}, 3, 2},
		{"still perhaps", []step{{here1, said(0, true, 3)}, {here2, said(1e9, true, 1)}, {here1, said(1e9+provenAfter, true, 3)}}, 3, 2},
		{"surely", []step{{here1, said(0, true, 3)}, {here2, said(1e9, true, 1)}, {here1, said(1e9+provenAfter+1, true, 3)}}, 4, 2},
		{"of which one moves on", []step{{here1, said(0, true, 3)}, {here2, said(1e9, true, 1)}, {here1, said(5e9, true, 3)}, {replicaB, said(6e9, true, 2)}}, 4, 3},
		{"one of which has left", []step{{here1, said(0, true, 3)}, {here2, said(1e9, true, 1)}, {here1, said(0, false, 3)}}, 1, 1},
	}
	for _, row := range tests {
		w := words{}
		for _, s := range row.steps {
			w.put(s.source, s.word)
		}
		if got := w.load("a").On("p"); got != row.want || len(w) != row.left {
			t.Errorf("%s: %d by %d words, want %d by %d", row.name, got, len(w), row.want, row.left)
		}
	}
}

// Whatever order words come in, the newest is among those that count, and no
// others do but those of open streams that are hardly older.
func TestWordsKeepTheNewest(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 5_000 {
		w, newest := words{}, map[source]time.Time{}
		for range 1 + r.IntN(20) {
			s := source{stream: r.Uint64N(5)}
			one := said(time.Duration(r.IntN(20))*time.Second, r.IntN(3) > 0, 1)
			w.put(s, one)
			newest[s] = one.received
		}
		if len(w) == 0 {
			t.Fatal("nothing is left")
		}
		best := w[w.newest()].received
		for s, one := range w {
			if s != w.newest() && (!one.connected || best.Sub(one.received) > overlap) || one.received != newest[s] {
				t.Fatalf("%v has %v while the newest is of %v", s, one, best)
			}
		}
		if l := w.load("a"); l.Received.After(best) {
			t.Fatalf("received %v after the newest, %v", l.Received, best)
		}
	}
}

// mover is an Envoy that reports each second, on a stream after the other.
type mover struct {
	on        source
	last      time.Duration // its newest report
	inFlight  uint32
	connected bool
}

// move has some of the Envoys lose their stream, which is noticed or not.
func (m *mover) move(r *rand.Rand, w words, next *uint64) {
	if r.IntN(8) > 0 {
		return
	}
	if m.connected && r.IntN(2) == 0 {
		w.put(m.on, said(m.last, false, m.inFlight))
	}
	*next++
	m.on, m.connected = source{stream: *next}, false
}

func (m *mover) report(r *rand.Rand, w words, now time.Duration) {
	m.last, m.inFlight, m.connected = now, 1+r.Uint32N(9), true
	w.put(m.on, said(now, true, m.inFlight))
}

// However often one Envoy changes its stream, it counts once: what counts is
// never more than the most that it said lately, nor less than what it said last.
func TestOneEnvoyCountsOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 500 {
		w, m, next := words{}, &mover{on: source{stream: 1}}, uint64(1)
		var lately []uint32
		for second := range 60 {
			m.move(r, w, &next)
			m.report(r, w, time.Duration(second)*time.Second+time.Duration(r.IntN(400))*time.Millisecond)
			lately = append(lately, m.inFlight)
			most := slices.Max(lately[max(0, len(lately)-7):])
			if got := w.load("a").On("p"); got < uint64(m.inFlight) || got > uint64(most) {
				t.Fatalf("after %d s: %d count, said were %v", second, got, lately)
			}
		}
	}
}

// Envoys of one name add up once they have spoken beside each other for a while.
func TestTwinsAddUp(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 200 {
		w, next := words{}, uint64(0)
		all := make([]*mover, 1+r.IntN(4))
		for i := range all {
			next++
			all[i] = &mover{on: source{stream: next}}
		}
		for second := range 20 {
			var want uint64
			for i, m := range all {
				m.report(r, w, time.Duration(second)*time.Second+time.Duration(i)*10*time.Millisecond)
				want += uint64(m.inFlight)
			}
			if got := w.load("a").On("p"); second > int(provenAfter/time.Second) && got != want || got > want {
				t.Fatalf("after %d s: %d count of %d Envoys, want %d", second, got, len(all), want)
			}
			here, ok := w.here()
			if second > int(provenAfter/time.Second) && (!ok || uint64(here.inFlight["p"]) != want) {
				t.Fatalf("after %d s: others are told of %v, want %d", second, here.inFlight, want)
			}
		}
	}
}
