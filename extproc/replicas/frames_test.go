package replicas

import (
	"bytes"
	"testing"

	"golang.org/x/net/http2"
)

// conversation is what a client sends, and the offsets at which a frame ends.
func conversation(sizes []byte) (all []byte, ends map[int]bool) {
	b := bytes.NewBufferString(http2.ClientPreface)
	f := http2.NewFramer(b, nil)
	_ = f.WriteSettings()
	ends = map[int]bool{b.Len(): true}
	for i, n := range sizes {
		_ = f.WriteData(uint32(2*i+1), false, bytes.Repeat([]byte{n}, 7*int(n)))
		ends[b.Len()] = true
	}
	return b.Bytes(), ends
}

func FuzzFramesAreToldApart(f *testing.F) {
	f.Add([]byte{}, uint8(1))
	f.Add([]byte{0, 1, 0, 255}, uint8(9))
	f.Add([]byte{37, 250, 3}, uint8(200))
	f.Fuzz(func(t *testing.T, sizes []byte, step uint8) {
		all, ends := conversation(sizes)
		var got frames
		for at := 0; at < len(all); {
			n := min(max(1, int(step)), len(all)-at)
			got.advance(all[at : at+n])
			if at += n; got.between() != ends[at] {
				t.Fatalf("after %d of %d bytes, in steps of %d: between frames is %v, want %v", at, len(all), step, got.between(), ends[at])
			}
		}
	})
}

func TestPingIsOne(t *testing.T) {
	f, err := http2.NewFramer(nil, bytes.NewReader(ping)).ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := f.(*http2.PingFrame); !ok || p.IsAck() {
		t.Errorf("frame is %v, want a ping", f)
	}
}

func TestAdvanceAllocatesNothing(t *testing.T) {
	all, _ := conversation([]byte{3, 0, 200})
	var f frames
	f.advance(all)
	rest := all[len(http2.ClientPreface):]
	if n := testing.AllocsPerRun(100, func() { f.advance(rest) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
