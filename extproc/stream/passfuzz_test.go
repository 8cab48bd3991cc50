package stream

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skipper/extproc/hold"
)

// tape plays what the fuzzer wrote, one byte an operation: whatever the order of
// streams is, even one that Envoy would never choose.
type tape struct {
	*virtual
	firsts, open []*leg
}

func (p *tape) play(n int, op byte) {
	which := int(op >> 4)
	switch op & 15 {
	case 0:
		p.firsts = append(p.firsts, p.first(function("t")))
	case 1:
		p.firsts = append(p.firsts, p.first(oneshot()))
	case 2, 3, 4, 5:
		p.open = append(p.open, p.later(p.idOf(which), []string{unknownToEnvoy, triedAndFailed, "", "x"}[op&15-2]))
	case 6, 7:
		end(p.open, which, op&1 == 0)
	case 8, 9:
		end(p.firsts, which, op&1 == 0)
	case 10:
		p.fill(function("t"), uint64(100+n), n)
	case 11:
		elapse(time.Duration(which) * 300 * time.Millisecond)
	}
}

// idOf is the id of a request, or one that nobody has.
func (p *tape) idOf(which int) string {
	if which < len(p.firsts) && p.firsts[which].answer() != nil {
		return p.firsts[which].id()
	}
	return strings.Repeat("0", which)
}

func end(legs []*leg, which int, orderly bool) {
	switch {
	case which >= len(legs) || legs[which].ended() || len(legs[which].end) > 0:
	case orderly:
		legs[which].over()
	default:
		legs[which].breaks()
	}
}

func (p *tape) finish() {
	all := slices.Concat(p.firsts, p.open)
	for n := range all {
		end(all, n, true)
	}
	elapse(2 * time.Minute)
	p.table.Sweep(time.Now(), false)
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
			p := &tape{virtual: v}
			for n, op := range ops {
				p.play(n, op)
			}
			p.finish()
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
