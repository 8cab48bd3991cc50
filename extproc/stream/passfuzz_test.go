package stream

import (
	"strings"
	"testing"
	"time"

	"skipper/extproc/hold"
)

// script plays what the fuzzer wrote, one byte an operation: whatever the order
// of streams is, even one that Envoy would never choose.
func (v *virtual) script(ops []byte) {
	var firsts, open []*leg
	f := function("t")
	for n, op := range ops {
		which := int(op >> 4)
		switch op & 15 {
		case 0:
			firsts = append(firsts, v.first(f))
		case 1:
			firsts = append(firsts, v.first(oneshot()))
		case 2, 3, 4, 5:
			id := strings.Repeat("0", which)
			if which < len(firsts) && firsts[which].answer() != nil {
				id = firsts[which].id()
			}
			open = append(open, v.later(id, []string{unknownToEnvoy, triedAndFailed, "", "x"}[op&15-2]))
		case 6, 7:
			if which < len(open) && !open[which].ended() && len(open[which].end) == 0 {
				v.end(open[which], op&1 == 0)
			}
		case 8, 9:
			if which < len(firsts) && !firsts[which].ended() {
				v.end(firsts[which], op&1 == 0)
			}
		case 10:
			v.fill(f, uint64(100+n), n)
		case 11:
			elapse(time.Duration(which) * 300 * time.Millisecond)
		}
	}
	for _, l := range append(firsts, open...) {
		if !l.ended() && len(l.end) == 0 {
			l.over()
		}
	}
}

func (v *virtual) end(l *leg, orderly bool) {
	if orderly {
		l.over()
	} else {
		l.breaks()
	}
}

// FuzzLaterStreams plays streams of further passes in any order: nothing is left
// in progress after the end, and no pod of a oneshot is released twice.
func FuzzLaterStreams(f *testing.F) {
	f.Add([]byte{0, 3, 3, 8})
	f.Add([]byte{1, 3, 2, 0x1b, 3, 6, 8})
	f.Add([]byte{10, 0, 3, 10, 3, 2, 0x1b, 9, 0x16, 6})
	f.Add([]byte{1, 3, 3, 9, 3, 0x2b, 0xf5})
	f.Add([]byte{0, 2, 3, 10, 8, 4, 5, 0x52})
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) > 64 {
			return
		}
		inBubble(t, &fakeController{answer: always}, func(t *testing.T, v *virtual) {
			v.script(ops)
			elapse(2 * time.Minute)
			v.table.Sweep(time.Now(), false)
			if n := v.inFlight(); len(n) != 0 {
				t.Errorf("left in progress: %v", n)
			}
			if n := v.metric(t, "skipper_extproc_in_flight_requests", ""); n != 0 {
				t.Errorf("%v requests in flight by metric", n)
			}
			released := map[string]bool{}
			for len(v.released) > 0 {
				uid := <-v.released
				if released[uid] {
					t.Errorf("%s was released twice", uid)
				}
				released[uid] = true
			}
		}, func(o *Options, _ *hold.Options) { slowly(o) })
	})
}
