package delta_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"skipper/xds/server/internal/delta"
)

// naiveClient does what the protocol asks of a client, and nothing else.
type naiveClient struct {
	names  map[string]bool
	all    bool
	holds  map[string]string
	unread []*discoveryv3.DeltaDiscoveryResponse
}

func (c *naiveClient) apply(r *discoveryv3.DeltaDiscoveryResponse) {
	for _, e := range r.GetResources() {
		c.holds[e.GetName()] = e.GetVersion()
	}
	for _, name := range r.GetRemovedResources() {
		delete(c.holds, name)
	}
}

// want is what the client must hold in the end.
func (c *naiveClient) want(v versions) map[string]string {
	out := map[string]string{}
	for name, version := range v {
		if version != "" && (c.all || c.names[name]) {
			out[name] = version
		}
	}
	return out
}

// TestClientEndsUpWithTheWorld lets a world and the wishes of a client change
// at random while answers are late or rejections, and streams break.
func TestClientEndsUpWithTheWorld(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		g := &game{t: t, r: r, v: versions{}, c: &naiveClient{holds: map[string]string{}}}
		g.connect()
		for range 200 {
			g.step()
		}
		g.drain()
		got := map[string]string{}
		for name, version := range g.c.holds {
			if g.c.all || g.c.names[name] {
				got[name] = version
			}
		}
		if diff := cmp.Diff(g.c.want(g.v), got); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
	}
}

type game struct {
	t     *testing.T
	r     *rand.Rand
	v     versions
	s     *delta.Subscription
	c     *naiveClient
	nonce int
}

func (g *game) name() string { return fmt.Sprintf("r%d", g.r.IntN(6)) }

func (g *game) connect() {
	g.s = delta.New(delta.Rules{Wildcard: true, MaxNames: 100})
	g.c.unread = nil
	g.c.all = g.r.IntN(2) == 0
	g.c.names = map[string]bool{g.name(): true}
	first := &request{InitialResourceVersions: g.c.holds}
	for name := range g.c.names {
		first.ResourceNamesSubscribe = append(first.ResourceNamesSubscribe, name)
	}
	if g.c.all {
		first.ResourceNamesSubscribe = append(first.ResourceNamesSubscribe, "*")
	}
	g.v.handle(g.t, g.s, first)
}

func (g *game) step() {
	switch g.r.IntN(12) {
	case 0, 1, 2:
		name := g.name()
		if g.v[name] = fmt.Sprint(g.r.IntN(3)); g.v[name] == "0" {
			delete(g.v, name)
		}
		g.s.Changed(name)
	case 3:
		name := g.name()
		g.c.names[name] = true
		g.v.handle(g.t, g.s, &request{ResourceNamesSubscribe: []string{name}})
	case 4:
		name := g.name()
		delete(g.c.names, name)
		g.v.handle(g.t, g.s, &request{ResourceNamesUnsubscribe: []string{name}})
	case 5:
		if g.r.IntN(10) == 0 {
			g.connect()
		}
	case 6, 7, 8:
		g.send()
	default:
		g.answer(g.r.IntN(8) == 0)
	}
}

func (g *game) send() bool {
	g.nonce++
	sent := g.s.Next("type", delta.Stamp{Nonce: fmt.Sprint(g.nonce), At: time.Unix(0, 0), Generation: uint64(g.nonce), MaxBytes: 1 + g.r.IntN(40)}, g.v.find)
	if sent != nil {
		g.c.unread = append(g.c.unread, sent.Response)
	}
	return sent != nil
}

func (g *game) answer(reject bool) {
	if len(g.c.unread) == 0 {
		return
	}
	response := g.c.unread[0]
	g.c.unread = g.c.unread[1:]
	r := &request{ResponseNonce: response.GetNonce()}
	if reject {
		r.ErrorDetail = &status.Status{Message: "rejected"}
	} else {
		g.c.apply(response)
	}
	g.v.handle(g.t, g.s, r)
	if reject { // the next change mends it; here the client asks again
		for _, e := range response.GetResources() {
			g.s.Changed(e.GetName())
		}
		for _, name := range response.GetRemovedResources() {
			g.s.Changed(name)
		}
	}
}

func (g *game) drain() {
	for range 100 {
		g.answer(false)
		if !g.send() && len(g.c.unread) == 0 {
			return
		}
	}
	g.t.Fatal("it never comes to rest")
}

// FuzzHandle feeds requests of any bytes, among changes of the world.
func FuzzHandle(f *testing.F) {
	for _, r := range []*request{
		{},
		{ResourceNamesSubscribe: []string{"a", "*"}},
		{ResponseNonce: "1", ResourceNamesUnsubscribe: []string{"a", "*"}},
		{InitialResourceVersions: map[string]string{"a": "1"}, ErrorDetail: &status.Status{}},
	} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, b, true)
	}
	f.Fuzz(func(t *testing.T, one, two []byte, wildcard bool) {
		s, v := delta.New(rules(wildcard)), versions{"a": "1", "b": "pending"}
		for _, b := range [][]byte{one, two, one} {
			r := &request{}
			if proto.Unmarshal(b, r) != nil {
				return
			}
			o, err := s.Handle(r)
			if err != nil {
				return
			}
			for _, name := range append(o.Subscribed, s.Claimed()...) {
				s.Offer(name, v[name])
			}
			s.Changed("a")
			v.next(s, "1", 1)
		}
	})
}
