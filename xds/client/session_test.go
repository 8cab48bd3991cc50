package client

import (
	"fmt"
	"math/rand/v2"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	skipperpb "skipper/proto"
	"skipper/xds"
)

func TestNothingIsAskedForWithoutASubscription(t *testing.T) {
	c := New(Options{})
	c.Subscribe("a/b/c")
	c.Unsubscribe("a/b/c")
	if got := c.requests(true); len(got) > 0 {
		t.Errorf("a stream would begin with %v, which asks for everything", got)
	}
	c.Subscribe("a/b/c")
	if got := c.requests(true); len(got) != 1 {
		t.Errorf("%d requests for one subscription", len(got))
	}
	c.Unsubscribe("a/b/c")
	if got := c.requests(false); len(got) != 1 || len(got[0].GetResourceNamesUnsubscribe()) != 1 {
		t.Errorf("unsubscribing on a stream: %v", got)
	}
	if got := c.requests(false); len(got) > 0 {
		t.Errorf("said twice: %v", got)
	}
}

// However names come and go, over reconnects, the controller ends up with what is
// wanted, is told to end only what it has, and nothing piles up while it is away.
func TestRequestsSayWhatIsWanted(t *testing.T) {
	const names, away = 20, 100_000
	name := func(n int) string { return fmt.Sprintf("a/b/t%d", n) }
	for range 200 {
		c, wanted, server, first := New(Options{}), map[string]bool{}, map[string]bool{}, true
		for range 100 {
			switch n := name(rand.IntN(names)); rand.IntN(8) {
			case 0:
				c.forgetSent()
				server, first = map[string]bool{}, true
			case 1, 2:
				for _, r := range c.requests(first) {
					first = false
					apply(t, server, r)
				}
				if d := cmp.Diff(wanted, server); d != "" {
					t.Fatalf("the controller has (-want +got):\n%s", d)
				}
			case 3, 4, 5:
				c.Subscribe(n)
				wanted[n] = true
			default:
				c.Unsubscribe(n)
				delete(wanted, n)
			}
			if held := len(c.todo) + len(c.sent) + len(c.wanted); held > 3*names {
				t.Fatalf("%d names are remembered", held)
			}
		}
	}
	c := New(Options{})
	for n := range away {
		c.Subscribe(name(n))
		c.Unsubscribe(name(n))
	}
	if held := len(c.todo) + len(c.sent) + len(c.wanted); held > 0 {
		t.Errorf("%d names of functions that nobody uses are remembered while no controller is there", held)
	}
}

// apply is what a controller does with a request.
func apply(t *testing.T, subscribed map[string]bool, r *discoveryv3.DeltaDiscoveryRequest) {
	t.Helper()
	for _, n := range r.GetResourceNamesSubscribe() {
		subscribed[n] = true
	}
	for _, n := range r.GetResourceNamesUnsubscribe() {
		if !subscribed[n] {
			t.Errorf("%s is ended, and was never asked for", n)
		}
		delete(subscribed, n)
	}
}

// FuzzAccept delivers responses of any bytes; only what is subscribed to may
// come through, and every response gets an answer that can be sent.
func FuzzAccept(f *testing.F) {
	a, err := anypb.New(&skipperpb.FunctionInstances{Name: "a/b/c"})
	if err != nil {
		f.Fatal(err)
	}
	for _, r := range []*discoveryv3.DeltaDiscoveryResponse{
		{TypeUrl: xds.InstancesTypeURL, Resources: []*discoveryv3.Resource{{Name: "a/b/c", Version: "1", Resource: a}, {Name: "x"}, nil}},
		{TypeUrl: xds.InstancesTypeURL, RemovedResources: []string{"a/b/c", "x"}},
		{},
	} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &discoveryv3.DeltaDiscoveryResponse{}
		if proto.Unmarshal(b, r) != nil {
			return
		}
		onlyOurs := func(name string) {
			if name != "a/b/c" {
				t.Errorf("heard of %q", name)
			}
		}
		c := New(Options{OnRemove: onlyOurs, OnUpdate: func(m *skipperpb.FunctionInstances) { onlyOurs(m.GetName()) }})
		c.Subscribe("a/b/c")
		if _, err := proto.Marshal(c.accept(r)); err != nil {
			t.Errorf("answer cannot be sent: %v", err)
		}
	})
}
