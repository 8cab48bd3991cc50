package server_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"skipper/xds/server"
)

// departures is an observer that writes down who left.
type departures struct {
	mu   sync.Mutex
	left []server.Departure
	gone chan struct{}
	acks chan struct{}
}

func observed(s *server.Server) *departures {
	d := &departures{gone: make(chan struct{}, 10), acks: make(chan struct{}, 100)}
	s.Observe(server.Observer{
		Acknowledged: func() { d.acks <- struct{}{} },
		Left: func(g server.Departure) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.left = append(d.left, g)
			d.gone <- struct{}{}
		},
	})
	return d
}

func TestSubscribersTellHowFarTheyAre(t *testing.T) {
	src := &source{}
	src.set(list("prod/echo/t1", 1, "a"))
	s := server.New(server.Options{Source: src, Shards: shards})
	s.Open()
	d := observed(s)
	c := connect(t, start(t, s), "extproc/e1")
	c.subscribe(instances, "prod/echo/t1")
	r := c.read(instances)
	want := server.Subscriber{Node: "extproc/e1", Type: "instances", Names: 1, Pending: 1}
	times := cmpopts.IgnoreFields(server.Subscriber{}, "Overdue", "AckedAt", "QuietAt")
	if diff := cmp.Diff([]server.Subscriber{want}, s.Subscribers(), times); diff != "" {
		t.Errorf("before its answer (-want +got):\n%s", diff)
	}
	c.ack(r)
	<-d.acks
	want.Pending, want.CaughtUp = 0, true
	got := s.Subscribers()
	if diff := cmp.Diff([]server.Subscriber{want}, got, times); diff != "" {
		t.Errorf("after its answer (-want +got):\n%s", diff)
	}
	if got[0].AckedAt.IsZero() || got[0].QuietAt.Before(got[0].AckedAt) {
		t.Errorf("acknowledged at %v, quiet at %v", got[0].AckedAt, got[0].QuietAt)
	}
	s.Apply(server.Change{Instances: protoList(list("prod/echo/t1", 2))})
	if got := s.Subscribers()[0]; got.Pending != 1 || !got.CaughtUp {
		t.Errorf("after a change it is %+v: what it has caught up with stays so", got)
	}
}

func TestObserverHearsWhatADepartedClientKnew(t *testing.T) {
	src := &source{}
	src.set(list("prod/echo/t1", 1, "a"))
	src.set(list("prod/echo/t2", 1, "b"))
	s := server.New(server.Options{Source: src, Shards: shards})
	s.Open()
	d := observed(s)
	conn := start(t, s)
	c := connect(t, conn, "extproc/e1")
	c.subscribe(instances, "prod/echo/t1", "prod/echo/t2")
	c.next(instances)
	<-d.acks
	known := s.Apply(server.Change{Instances: protoList(list("prod/echo/t1", 2))})
	c.read(instances) // and no answer
	unknown := s.Apply(server.Change{Instances: protoList(list("prod/echo/t2", 2))})
	if diff := cmp.Diff([]string{"extproc/e1"}, s.Unacknowledged(instances, "prod/echo/t2", unknown)); diff != "" {
		t.Errorf("unacknowledged (-want +got):\n%s", diff)
	}
	before := time.Now()
	_ = conn.Close()
	<-d.gone
	if got := s.Unacknowledged(instances, "prod/echo/t1", known); len(got) != 0 {
		t.Errorf("after it left, %v are still waited for", got)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.left[0]
	if g.Node != "extproc/e1" || g.At.Before(before) || g.Acknowledged["prod/echo/t1"] >= known || g.Acknowledged["prod/echo/t2"] >= unknown {
		t.Errorf("departure %+v, want less than generations %d and %d", g, known, unknown)
	}
	if len(g.Acknowledged) != 2 {
		t.Errorf("departure names %v", g.Acknowledged)
	}
}
