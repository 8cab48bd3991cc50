package inflight

import (
	"math/rand/v2"
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
		{"two Envoys of one name", []step{{here1, said(0, true, 3)}, {here2, said(1e9, true, 1)}}, 3, 2},
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
