package inflight

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds/loads"
)

// before is when whatever is said at the start is known of.
var before = start.Add(-time.Minute)

func TestReportOfAFormerPodIsNotCreditedToTheNextAtItsAddress(t *testing.T) {
	w := newWorld(t)
	was, is := apart("10.0.0.1")
	w.add(was, is)
	w.store.Reported(stream("a", 1), start, []loads.Busy{busy(was, 2)})
	w.want("former", was.UID, before, start, 2, true)
	w.want("next", is.UID, before, start, 0, true)

	w.addresses.Observe(pool.Event{Kind: pool.Removed, Old: &was})
	w.store.Reported(stream("a", 1), start, []loads.Busy{busy(was, 2), busy(is, 1)})
	w.want("next, after the former has gone", is.UID, before, start, 1, true)
	if _, unknown := w.store.state(start); unknown != 1 {
		t.Errorf("%d unknown addresses, want the former's", unknown)
	}
}

func TestAddressesFollowThePods(t *testing.T) {
	a := NewAddresses(shards)
	p := instance("p", "10.0.0.1")
	moved, finished := p, p
	moved.IP, finished.Phase = "10.0.0.2", "Failed"
	twin := p
	for i := 0; twin.UID == p.UID || busy(twin, 1) != busy(p, 1); i++ {
		twin.UID = fmt.Sprint("twin-", i)
	}
	resolve := func(of pool.Pod) on { m, _ := a.Resolve([]loads.Busy{busy(of, 1), busy(of, 1)}); return m }
	for _, row := range []struct {
		name     string
		old, new *pool.Pod
		of       pool.Pod
		want     on
	}{
		{"added", nil, &p, p, on{"p": 2}},
		{"moved, at the old place", &p, &moved, p, on{}},
		{"moved, at the new one", &moved, &moved, moved, on{"p": 2}},
		{"moved back", &moved, &p, p, on{"p": 2}},
		{"shared by two: any may be at work", nil, &twin, p, on{"p": 2, twin.UID: 2}},
		{"finished", &p, &finished, p, on{twin.UID: 2}},
		{"gone", &twin, nil, p, on{}},
	} {
		a.Observe(pool.Event{Old: row.old, New: row.new})
		if diff := cmp.Diff(row.want, resolve(row.of)); diff != "" {
			t.Errorf("%s: %s", row.name, diff)
		}
	}
	if len(a.at) != 0 {
		t.Errorf("remembered without pods: %v", a.at)
	}
}

// An extproc is killed with a request in progress: Envoy's word replaces its.
func TestKilledExtprocDoesNotCountOnTop(t *testing.T) {
	w := newWorld(t)
	p := instance("p", "10.0.0.1")
	w.add(p)
	w.beat("x", "a", start, on{"p": 2})
	w.store.Reported(stream("a", 1), start, []loads.Busy{busy(p, 2)})
	w.want("both", "p", before, start, 2, true)
	after := start.Add(timeout + time.Second)
	w.store.Reported(stream("a", 1), after, []loads.Busy{busy(p, 1)})
	w.want("its heartbeat has expired, the request runs", "p", start, after, 1, true)
	w.store.Reported(stream("a", 1), after.Add(2e9), nil)
	w.want("ended", "p", after, after.Add(2e9), 0, true)
}

func TestKnownNeedsEveryEnvoyAndEveryRouterToHaveSpokenLater(t *testing.T) {
	w := newWorld(t)
	p := instance("p", "10.0.0.1")
	w.add(p)
	w.want("nobody speaks", "p", start, start, 0, true)
	later := start.Add(10 * time.Second)
	w.store.Reported(stream("a", 1), start, nil)
	w.store.Reported(stream("b", 2), later, nil)
	w.want("a is silent", "p", start, later, 0, false)
	w.store.Reported(stream("a", 1), later, nil)
	w.want("both have spoken", "p", start, later, 0, true)
	w.beat("x", "a", start, on{"p": 1})
	w.want("a router has not", "p", start, later, 1, false)
	w.beat("x", "a", later, on{})
	w.want("it has", "p", start, later, 0, true)
	w.want("no such pod", "q", start, later, 0, false)
	w.protected = true
	w.want("just started", "p", start, later, 0, false)
}

func TestLastWordOfALostEnvoyHoldsUntilItExpires(t *testing.T) {
	w := newWorld(t)
	p := instance("p", "10.0.0.1")
	w.add(p)
	w.store.Reported(stream("a", 1), start, []loads.Busy{busy(p, 1)})
	w.store.Ended(stream("a", 1))
	w.want("lost", "p", start, start.Add(expiry), 1, false)
	w.want("expired", "p", start, start.Add(expiry+1), 0, true)
	w.store.Ended(stream("b", 2)) // never reported
	if nodes := w.store.Nodes(start.Add(expiry)); len(nodes) != 1 {
		t.Errorf("nodes %v", nodes)
	}
}

func TestLoadKeepsAFunctionAlive(t *testing.T) {
	w := newWorld(t)
	key, p := fn.KeyOf(function), instance("p", "10.0.0.1")
	w.add(p)
	w.beat("x", "", start, on{"p": 1})
	later := start.Add(50 * time.Second)
	w.store.Reported(stream("a", 1), later, []loads.Busy{busy(p, 2)})
	a := w.store.Activity(key, later)
	if a.InFlight != 3 || !a.Last.Equal(later) || a.Routers != 1 || a.Function == nil {
		t.Errorf("activity %+v", a)
	}
	if at, ok := w.store.Named(key, "p", later); !ok || !at.Equal(later) {
		t.Errorf("named %v, %v", at, ok)
	}
	w.store.Reported(stream("a", 1), later.Add(time.Second), nil)
	if a := w.store.Activity(key, later); a.InFlight != 1 || !a.Last.Equal(start) {
		t.Errorf("activity after an empty report %+v", a)
	}
	if n, known := w.store.InFlightOf(key, "p", later); n != 1 || !known {
		t.Errorf("%d, %v", n, known)
	}
	w.store.Forget(key)
	w.store.Reported(stream("a", 1), later, nil)
	if _, ok := w.store.Named(key, "p", later); ok {
		t.Error("named after Forget")
	}
}

func TestLastWordOfALostEnvoyKeepsPodsButDoesNotScale(t *testing.T) {
	w := newWorld(t)
	p := instance("p", "10.0.0.1")
	w.add(p)
	w.store.Reported(stream("a", 1), start, []loads.Busy{busy(p, 2)})
	long := start.Add(lostAfter + 1)
	w.store.Reported(stream("successor", 2), long, []loads.Busy{busy(p, 1)})
	if a := w.store.Activity(fn.KeyOf(function), long); a.InFlight != 1 || !a.Last.Equal(long) {
		t.Errorf("activity %+v", a)
	}
	w.want("on the pod", "p", start, long, 3, false)
}

func TestEnvoysAreBounded(t *testing.T) {
	w := newWorld(t)
	for i := range maxNodes + 1 {
		w.store.Reported(stream(fmt.Sprint("e", i), uint64(i)), start, nil)
	}
	if n := len(w.store.Nodes(start)); n != maxNodes {
		t.Errorf("%d Envoys", n)
	}
	w.store.Reported(stream("late", 5000), start.Add(expiry+1), nil)
	if n := len(w.store.nodes); n != 1 {
		t.Errorf("%d Envoys after the others have expired", n)
	}
}

// A router that speaks only the contract may have sent a request a moment ago,
// to a function that it has not named in a heartbeat yet.
func TestFirstRequestOfARouterWithoutEnvoyIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	p := instance("p", "10.0.0.1")
	w.add(p)
	w.store.Reported(stream("a", 1), start.Add(5*time.Second), nil)
	w.want("without such a router", "p", start, start.Add(5*time.Second), 0, true)
	other := proto.CloneOf(function)
	other.Tenant = "other"
	w.beats.Record(&skipperpb.HeartbeatRequest{RouterIp: "10.9.0.1", Heartbeats: []*skipperpb.Heartbeat{{Function: other}}}, start)
	w.want("it may have begun one", "p", start, start.Add(5*time.Second), 0, false)
	w.beat("10.9.0.1", "", start.Add(6*time.Second), on{"p": 1})
	w.want("it tells of one", "p", start, start.Add(12*time.Second), 1, true)
}

// What an Envoy beyond the bound has in progress is not known to be nothing.
func TestNothingIsKnownWhileThereAreTooManyEnvoys(t *testing.T) {
	w := newWorld(t)
	p := instance("p", "10.0.0.1")
	w.add(p)
	for i := range maxNodes {
		w.store.Reported(stream(fmt.Sprint("e", i), uint64(i)), start.Add(time.Minute), nil)
	}
	w.want("as many as may be", "p", start, start.Add(time.Minute), 0, true)
	w.store.Reported(stream("late", 5000), start.Add(time.Minute), []loads.Busy{busy(p, 1)})
	w.want("one more", "p", start, start.Add(time.Minute), 0, false)
	later := start.Add(time.Minute + expiry + 1)
	w.store.Reported(stream("late", 5000), later, []loads.Busy{busy(p, 1)})
	w.want("when it is taken", "p", start, later, 1, true)
}

func TestMetricsTellOfEnvoys(t *testing.T) {
	w := newWorld(t)
	w.store.Reported(stream("a", 1), time.Now().Add(-time.Minute), []loads.Busy{{Cluster: "c", Addr: "10.0.0.9:1", InProgress: 1}})
	w.store.Reported(stream("b", 2), time.Now(), nil)
	n, err := testutil.GatherAndCount(w.registry)
	if err != nil || n != 6 {
		t.Errorf("%d series, %v", n, err)
	}
	age, unknown := w.store.state(time.Now())
	if age < time.Minute || unknown != 1 {
		t.Errorf("age %v, %d unknown", age, unknown)
	}
}

// A request is counted from two sides; when traffic ends, nothing is left.
func TestCountsReturnToZero(t *testing.T) {
	w := newWorld(t)
	p, q := instance("p", "10.0.0.1"), instance("q", "10.0.0.2")
	w.add(p, q)
	now := start
	for i := range uint32(50) {
		now = now.Add(time.Second)
		w.beat("x", "a", now, on{"p": i % 3, "q": i % 5})
		w.store.Reported(stream("a", 1), now, []loads.Busy{busy(p, i%4), busy(q, i%2)})
		if err := w.store.Hear(&skipperpb.ShareLoadRequest{SenderIp: "10.0.0.2", Envoys: []*skipperpb.EnvoyLoad{envoyLoad("b", 0, on{"q": i % 7})}}, now); err != nil {
			t.Fatal(err)
		}
	}
	w.beat("x", "a", now, nil) // not newer: ignored
	now = now.Add(time.Second)
	w.beat("x", "a", now, nil)
	w.store.Reported(stream("a", 1), now, nil)
	if err := w.store.Hear(&skipperpb.ShareLoadRequest{SenderIp: "10.0.0.2", Envoys: []*skipperpb.EnvoyLoad{envoyLoad("b", 0, nil)}}, now); err != nil {
		t.Fatal(err)
	}
	if a := w.store.Activity(fn.KeyOf(function), now); a.InFlight != 0 {
		t.Errorf("%d in flight", a.InFlight)
	}
}

// The end of a gateway holds up drains only while it may have something in progress.
func TestEnvoyOfAnExtprocThatSaidGoodbye(t *testing.T) {
	late := start.Add(time.Minute)
	for _, row := range []struct {
		name    string
		n       uint32
		goodbye bool
		served  bool
		ended   bool
		known   bool
	}{
		{"stopped in order", 0, true, false, true, true},
		{"still connected", 0, true, false, false, false},
		{"without a goodbye", 0, false, false, true, false},
		{"with a request in progress", 1, true, false, true, false},
		{"with another extproc, between two streams", 0, true, true, true, false},
	} {
		w := newWorld(t)
		p := instance("p", "10.0.0.1")
		w.add(p)
		var has []loads.Busy
		if row.n > 0 {
			has = append(has, busy(p, row.n))
		}
		w.store.Reported(stream("old", 1), start, has)
		w.store.Reported(stream("new", 2), late, nil)
		if row.goodbye {
			w.store.Goodbye("old", start)
		}
		if row.served {
			w.store.Served("old")
		}
		if row.ended {
			w.store.Ended(stream("old", 1))
		}
		w.want(row.name, "p", late.Add(-2*time.Second), late, int(row.n), row.known)
	}
}
