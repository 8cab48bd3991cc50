package inflight

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	skipperpb "skipper/proto"
	"skipper/xds/loads"
)

func TestEnvoysTellWhoReportsHere(t *testing.T) {
	w := newWorld(t)
	a, b := instance("a", "10.1.0.1"), instance("b", "10.1.0.2")
	w.add(a, b)
	w.store.Reported(stream("here", 1), start, []loads.Busy{busy(a, 3), busy(b, 2)})
	w.store.Reported(stream("left", 2), start, []loads.Busy{busy(a, 1)})
	w.store.Ended(stream("left", 2))
	if err := w.store.Hear(&skipperpb.ShareLoadRequest{SenderIp: "10.0.0.2", Envoys: []*skipperpb.EnvoyLoad{
		{NodeId: "elsewhere", Connected: true, Age: durationpb.New(0), InFlight: map[string]uint32{"b": 7}},
	}}, start); err != nil {
		t.Fatal(err)
	}
	want := []Envoy{
		{Node: "elsewhere", Received: start.Add(-transit), InFlight: 7},
		{Node: "here", Here: true, Received: start, InFlight: 5},
		{Node: "left", Received: start, InFlight: 1},
	}
	if d := cmp.Diff(want, w.store.Envoys(start.Add(time.Second))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := w.store.Envoys(start.Add(expiry + time.Minute)); len(got) > 0 {
		t.Errorf("after the expiry there are %v", got)
	}
}
