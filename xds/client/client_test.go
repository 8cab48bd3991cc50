package client_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"

	skipperpb "skipper/proto"
	"skipper/xds"
)

func wantRequest(t *testing.T, got, want *discoveryv3.DeltaDiscoveryRequest) {
	t.Helper()
	want.TypeUrl = xds.InstancesTypeURL
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Fatalf("request (-want +got):\n%s", diff)
	}
}

func node() *corev3.Node { return &corev3.Node{Id: "extproc-1"} }

func TestSubscribesDeliversAcknowledgesAndUnsubscribes(t *testing.T) {
	c, cl, e := run(t)
	cl.Subscribe("a/b/c")
	s := c.open(t)
	wantRequest(t, s.request(), &discoveryv3.DeltaDiscoveryRequest{Node: node(), ResourceNamesSubscribe: []string{"a/b/c"}})
	s.send("n1", nil, resourceOf(t, "a/b/c", "v1"))
	if got := (<-e.updates).GetName(); got != "a/b/c" {
		t.Errorf("update of %q", got)
	}
	wantRequest(t, s.request(), &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: "n1"})
	cl.Unsubscribe("never/asked/for")
	cl.Unsubscribe("a/b/c")
	wantRequest(t, s.request(), &discoveryv3.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: []string{"a/b/c"}})
	// What was on its way meanwhile is acknowledged, and not delivered.
	s.send("n2", nil, resourceOf(t, "a/b/c", "v2"))
	wantRequest(t, s.request(), &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: "n2"})
	cl.Subscribe("a/b/d")
	s.request()
	s.send("n3", []string{"a/b/d", "a/b/c"})
	if got := <-e.removes; got != "a/b/d" {
		t.Errorf("removal of %q", got)
	}
	if len(e.updates)+len(e.removes) > 0 {
		t.Error("heard of a name that is not subscribed to")
	}
}

func TestFirstRequestNamesAFunction(t *testing.T) {
	c, cl, _ := run(t)
	s := c.open(t)
	cl.Unsubscribe("a/b/early")
	cl.Subscribe("*")
	cl.Subscribe("no name")
	cl.Subscribe("a/b/c")
	wantRequest(t, s.request(), &discoveryv3.DeltaDiscoveryRequest{Node: node(), ResourceNamesSubscribe: []string{"a/b/c"}})
}

func TestResumesWithWhatItHas(t *testing.T) {
	c, cl, e := run(t)
	cl.Subscribe("a/b/c")
	cl.Subscribe("a/b/d")
	s := c.open(t)
	for subscribed := 0; subscribed < 2; {
		subscribed += len(s.request().GetResourceNamesSubscribe())
	}
	s.send("n1", nil, resourceOf(t, "a/b/c", "v1"))
	<-e.updates
	s.ended <- status.Error(codes.Unavailable, "rolled out")
	s = c.open(t)
	wantRequest(t, s.request(), &discoveryv3.DeltaDiscoveryRequest{
		Node: node(), ResourceNamesSubscribe: []string{"a/b/c", "a/b/d"}, InitialResourceVersions: map[string]string{"a/b/c": "v1"},
	})
}

func TestSubscribingAgainAsksAfresh(t *testing.T) {
	c, cl, e := run(t)
	cl.Subscribe("a/b/c")
	s := c.open(t)
	s.request()
	s.send("n1", nil, resourceOf(t, "a/b/c", "v1"))
	<-e.updates
	s.request()
	cl.Subscribe("a/b/c")
	wantRequest(t, s.request(), &discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"a/b/c"}})
	s.ended <- nil
	wantRequest(t, c.open(t).request(), &discoveryv3.DeltaDiscoveryRequest{Node: node(), ResourceNamesSubscribe: []string{"a/b/c"}})
}

func TestUnreadableResourcesAreRejectedAndTheRestDelivered(t *testing.T) {
	wrongType, err := anypb.New(&skipperpb.Instance{})
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]*discoveryv3.Resource{
		"wrong type":      {Name: "a/b/d", Version: "v1", Resource: wrongType},
		"no message":      {Name: "a/b/d", Version: "v1"},
		"no protobuf":     {Name: "a/b/d", Version: "v1", Resource: &anypb.Any{TypeUrl: xds.InstancesTypeURL, Value: []byte{0xff}}},
		"somebody else's": {Name: "a/b/d", Version: "v1", Resource: resourceOf(t, "a/b/other", "").GetResource()},
	} {
		t.Run(name, func(t *testing.T) {
			c, cl, e := run(t)
			cl.Subscribe("a/b/c")
			cl.Subscribe("a/b/d")
			s := c.open(t)
			for subscribed := 0; subscribed < 2; {
				subscribed += len(s.request().GetResourceNamesSubscribe())
			}
			s.send("n1", nil, bad, resourceOf(t, "a/b/c", "v1"))
			if got := (<-e.updates).GetName(); got != "a/b/c" {
				t.Errorf("update of %q", got)
			}
			if r := s.request(); r.GetResponseNonce() != "n1" || r.GetErrorDetail().GetMessage() == "" {
				t.Errorf("got %v, want a rejection in words", r)
			}
			s.ended <- nil
			if got := c.open(t).request().GetInitialResourceVersions(); !cmp.Equal(got, map[string]string{"a/b/c": "v1"}) {
				t.Errorf("claims to have %v", got)
			}
		})
	}
}

func TestSyncedFollowsTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, cl, _ := run(t)
		if since, connected := cl.Synced(); connected || !since.IsZero() {
			t.Errorf("at first: %v, %v", since, connected)
		}
		s := c.accept(t)
		synctest.Wait()
		if _, connected := cl.Synced(); connected {
			t.Error("synced with a controller that does not know the world yet")
		}
		s.open()
		synctest.Wait()
		opened := time.Now()
		if since, connected := cl.Synced(); !connected || !since.Equal(opened) {
			t.Errorf("open: %v, %v; want %v", since, connected, opened)
		}
		<-time.After(time.Minute)
		lost := time.Now()
		s.ended <- status.Error(codes.Unavailable, "gone")
		synctest.Wait()
		if since, connected := cl.Synced(); connected || !since.Equal(lost) {
			t.Errorf("lost: %v, %v; want %v", since, connected, lost)
		}
		c.open(t)
		synctest.Wait()
		if since, connected := cl.Synced(); !connected || since.Sub(lost) > time.Second {
			t.Errorf("again: %v, %v", since.Sub(lost), connected)
		}
	})
}

func TestReconnectsAreSpacedAndCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := run(t)
		begun := time.Now()
		const attempts = 20
		for range attempts {
			c.accept(t).ended <- status.Error(codes.Unavailable, "not now")
		}
		// 50 ms growing to 1 s, each with a jitter of half either way.
		if took := time.Since(begun); took < 4*time.Second || took > 1500*time.Millisecond*attempts {
			t.Errorf("%d attempts took %v", attempts, took)
		}
	})
}

func TestSubscriptionsBeyondOneRequestAreSplit(t *testing.T) {
	c, cl, _ := run(t)
	s := c.accept(t)
	const functions = 25_000
	for i := range functions {
		cl.Subscribe(fmt.Sprintf("prod/echo/t-%d", i))
	}
	s.open()
	for seen := 0; seen < functions; {
		r := s.request()
		seen += len(r.GetResourceNamesSubscribe())
		if len(r.GetResourceNamesSubscribe()) > 10_000 {
			t.Fatalf("%d names in one request", len(r.GetResourceNamesSubscribe()))
		}
	}
}
