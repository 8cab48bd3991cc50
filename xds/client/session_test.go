package client

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
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
