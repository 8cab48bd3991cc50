package withdraw

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// recalled is the book of a controller that began at noon, and knows of an extproc that was there a moment before.
func recalled() *book {
	b := newBook(5*time.Minute, noon)
	b.read = true
	b.lose("extproc/old", away{since: noon.Add(40 * time.Second), inStep: noon.Add(-time.Minute), noted: noon, last: noon.Add(-time.Second)}, nil, nil)
	b.gateways["extproc/old"] = gateway{envoy: "gateway-1", ip: "10.9.0.1"}
	return b
}

// fresh is a free pod that was made after the extproc was last in step.
func fresh() *pool.Pod {
	return &pool.Pod{
		Namespace: "prod", Name: "p", UID: "p", IP: "10.0.0.1", Port: 80, Deployment: "echo", Ready: true, Phase: corev1.PodRunning,
		CreatedAt: noon,
	}
}

func TestWhoIsBack(t *testing.T) {
	for _, row := range []struct {
		name string
		news func(*book)
		want bool
	}{
		{"nobody", func(*book) {}, false},
		{"in step again", func(b *book) { b.inStep([]string{"extproc/old"}, noon.Add(time.Second)) }, true},
		{"in step before that was read", func(b *book) { b.inStep([]string{"extproc/old"}, noon.Add(-time.Second)) }, false},
		{"another one in step", func(b *book) { b.inStep([]string{"extproc/new"}, noon.Add(time.Second)) }, false},
		{"goodbye", func(b *book) { b.goodbye("extproc/old", noon) }, true},
		{"a later one in the same pod serves its Envoy", func(b *book) { b.serve("extproc/new", at("gateway-1", "10.9.0.1", 0), noon) }, true},
		{"one in another pod serves an Envoy of that name", func(b *book) { b.serve("extproc/new", at("gateway-1", "10.9.0.2", 0), noon) }, false},
		{"another one serves another Envoy", func(b *book) { b.serve("extproc/new", at("gateway-2", "10.9.0.1", 0), noon) }, false},
		{"its own late heartbeat", func(b *book) { b.serve("extproc/old", at("gateway-1", "10.9.0.1", 0), noon) }, false},
		{"its time is over", func(b *book) { b.expire(noon.Add(time.Hour)) }, true},
	} {
		b := recalled()
		row.news(b)
		if d := b.decide(fresh(), noon.Add(2*time.Second)); d.Allowed != row.want {
			t.Errorf("%s: allowed %v (%s), want %v", row.name, d.Allowed, d.Reason, row.want)
		}
	}
}

// at is where an extproc is that began so long after noon.
func at(envoy, ip string, began time.Duration) gateway {
	return gateway{envoy: envoy, ip: ip, began: noon.Add(began)}
}

func TestSucceed(t *testing.T) {
	const later = time.Minute
	for _, row := range []struct {
		name         string
		next, before gateway
		want         bool
	}{
		{"began later in the same pod", at("e", "ip", later), at("e", "ip", 0), true},
		{"began before the last word of the other", at("e", "ip", -later), at("e", "ip", 0), false},
		{"began when that was under way", at("e", "ip", -tardy+1), at("e", "ip", 0), true},
		{"began just before", at("e", "ip", -tardy), at("e", "ip", 0), false},
		{"another pod", at("e", "other", later), at("e", "ip", 0), false},
		{"another Envoy", at("other", "ip", later), at("e", "ip", 0), false},
		{"says no address", at("e", "", later), at("e", "", 0), false},
		{"the other said no address", at("e", "ip", later), at("e", "", 0), false},
		{"says no Envoy", at("", "ip", later), at("", "ip", 0), false},
		{"does not say when it began", gateway{envoy: "e", ip: "ip"}, at("e", "ip", 0), false},
		{"the other is unknown", at("e", "ip", later), gateway{}, false},
	} {
		if got := succeed(row.next, row.before, noon); got.ended != row.want || got.why == "" {
			t.Errorf("%s: %+v, want %v", row.name, got, row.want)
		}
	}
}

func TestSuccessorEndsOnlyWhoIsAway(t *testing.T) {
	b := recalled()
	serve := func(node string, began, now time.Duration) (ended []string, twins int) {
		ended, kept := b.serve(node, at("gateway-1", "10.9.0.1", began), noon.Add(now))
		return ended, len(kept)
	}
	serve("extproc/here", 0, 0) // ends old
	if ended, twins := serve("extproc/next", time.Minute, time.Minute); ended != nil || twins != 0 {
		t.Errorf("ended, though connected: %v", ended)
	}
	gone := noon.Add(30 * time.Second)
	b.lose("extproc/here", away{since: gone, inStep: gone, noted: gone, last: gone}, nil, nil)
	if ended, _ := serve("extproc/next", time.Minute, 2*time.Minute); !slices.Equal(ended, []string{"extproc/here"}) {
		t.Errorf("ended %v, want extproc/here", ended)
	}
	if ended, _ := serve("extproc/here", 0, 2*time.Minute); ended != nil || b.gateways["extproc/here"] != (gateway{}) {
		t.Errorf("late words of one that has ended: %v ended, is at %v", ended, b.gateways["extproc/here"])
	}
	if len(b.lost) != 0 || len(b.gateways) != 1 {
		t.Errorf("left behind: lost %v, gateways %v", b.lost, b.gateways)
	}
}

// Of two live gateways of one name, the one that can be reached says nothing
// about the other, however often and in whichever pod.
func TestTwinDoesNotEndWhoIsCutOff(t *testing.T) {
	for _, ip := range []string{"10.9.0.1", "10.9.0.2"} {
		b := newBook(5*time.Minute, noon.Add(-time.Hour))
		said := 0
		for second := 0; second < 120; second += 5 {
			now := time.Duration(second) * time.Second
			if second < 60 {
				b.serve("extproc/a", at("e", "10.9.0.1", 0), noon.Add(now))
			} else if second == 60 {
				b.depart("extproc/a", noon.Add(now), nil)
			}
			ended, twins := b.serve("extproc/b", at("e", ip, min(now, time.Second)), noon.Add(now))
			if said += len(twins); len(ended) > 0 {
				t.Fatalf("%s: ended %v after %d s", ip, ended, second)
			}
		}
		if said != 1 || b.lost["extproc/a"] == nil {
			t.Errorf("%s: said %d times, lost %v; want once, and the twin to be missed", ip, said, b.lost)
		}
	}
}

// A heartbeat that leaves out for how long its router has been running is none of a
// successor: who sends it may have been there all the time. What the router said
// of it before stays.
func TestWhoDoesNotSaySinceWhenEndsNobody(t *testing.T) {
	tracker := New(Config{
		Self: "10.1.0.1", Staleness: time.Minute, View: pool.NewView(), Subscribers: alone{}, Peers: alone{},
		Republish: func(fn.Key) {}, Freed: func([]string) {}, Registerer: prometheus.NewRegistry(), Log: zap.NewNop(),
	})
	tracker.book = recalled()
	tracker.book.lost["extproc/old"].last = time.Now().Add(-time.Minute)
	r := &skipperpb.HeartbeatRequest{RouterId: "new", RouterIp: "10.9.0.1", EnvoyNodeId: "gateway-1"}
	if ended := tracker.Serves(r); ended != nil || tracker.book.lost["extproc/old"] == nil {
		t.Errorf("ended %v, lost %v; want the other one to be missed", ended, tracker.book.lost)
	}
	r.RunningFor = durationpb.New(time.Second)
	if ended := tracker.Serves(r); !slices.Equal(ended, []string{"extproc/old"}) {
		t.Errorf("one that says that it has just begun ends %v", ended)
	}
	r.RunningFor = nil
	if tracker.Serves(r); tracker.book.gateways["extproc/new"].began.IsZero() {
		t.Error("what it said before is forgotten")
	}
}

// One that was recalled from its Lease, and is back, may succeed another.
func TestRecalledOneMaySucceed(t *testing.T) {
	b := recalled()
	began := noon.Add(30 * time.Second)
	b.serve("extproc/old", gateway{envoy: "gateway-1", ip: "10.9.0.1", began: began}, noon.Add(time.Minute))
	if got := b.gateways["extproc/old"].began; !got.Equal(began) {
		t.Errorf("began %v, want what it says: %v", got, began)
	}
}

// A word that the last one of the other overtakes does not make a late one of who was there before.
func TestBeganIsTheEarliestThatWasSaid(t *testing.T) {
	b := newBook(time.Minute, noon)
	b.serve("extproc/a", at("e", "ip", 0), noon)
	b.serve("extproc/a", at("e", "ip", time.Second), noon.Add(time.Hour))
	if got := b.gateways["extproc/a"]; !got.began.Equal(noon) || !got.heard.Equal(noon.Add(time.Hour)) {
		t.Errorf("began %v, heard %v", got.began, got.heard)
	}
	b.expire(noon.Add(2 * time.Hour))
	if len(b.gateways) != 0 {
		t.Errorf("remembered: %v", b.gateways)
	}
}

// A request that was sent to a pod just before everybody had forgotten it may be under way to the next one there.
func TestAddressRestsAfterItsPodIsForgotten(t *testing.T) {
	for after, want := range map[time.Duration]bool{-1: false, 0: false, underWay - 1: false, underWay: true} {
		b := newBook(5*time.Minute, noon.Add(-time.Hour))
		p := fresh()
		r := b.open("former", p.Addr(), fn.Key{Namespace: "prod", Deployment: "echo", Tenant: "t1"}, 1, noon)
		b.see(r)
		if after >= 0 {
			r.closed, r.closedAt = true, noon
		}
		b.forget(noon.Add(after))
		if d := b.decide(p, noon.Add(after)); d.Allowed != want {
			t.Errorf("%s after: allowed %v (%s), want %v", after, d.Allowed, d.Reason, want)
		}
	}
}
