package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"skipper/extproc/heartbeat"
	"skipper/extproc/table"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
	"skipper/xds/loads"
)

// gateway is an Envoy and, while it runs, its extproc.
type gateway struct {
	w     *world
	name  string
	clock time.Duration // of its extproc, hours off
	// plain is a router that knows only the contract: no lists, no load reports,
	// and heartbeats that say how many requests there are, not where.
	plain bool
	ended bool
	ep    *extproc // nil while there is none

	cutAt      time.Time // since when extproc reaches no controller
	cutTil     time.Time // until when
	deafTil    time.Time // until when Envoy reaches none
	at         *replica  // whom Envoy reports to
	stream     uint64
	troubleTil time.Time // until when controllers may not know all of it
}

// extproc is one process of it.
type extproc struct {
	g     *gateway
	id    string
	table *table.Table
	life  context.Context //nolint:containedctx // the process's own, ended by kill
	kill  context.CancelFunc

	at      *replica // whom it is connected to, as it believes
	stream  *stream
	notices time.Time // when it notices a cut; zero: there is none
	retry   time.Time
	wants   map[string]bool
	asks    map[fn.Key]*ask
	sums    map[fn.Key]uint32 // requests of a plain router
	specs   map[fn.Key]*skipperpb.Function
}

const sendsWithin = 15 * time.Second // in which controllers hear of all that is in progress

func (w *world) startGateway(plain bool) {
	w.made++
	g := &gateway{w: w, name: fmt.Sprint("envoy-", w.made), plain: plain}
	g.clock = w.upTo(-5*time.Hour, 5*time.Hour)
	w.gateways = append(w.gateways, g)
	w.say(g.name, "starts; plain: %v; its clock is off by %s", plain, g.clock)
	g.startExtproc()
	w.every(time.Second, func() bool { g.tick(); return !g.ended })
}

func (g *gateway) startExtproc() {
	w := g.w
	if g.ended || g.ep != nil {
		return
	}
	w.made++
	e := &extproc{
		g: g, id: fmt.Sprint("router-", w.made), wants: map[string]bool{}, asks: map[fn.Key]*ask{},
		sums: map[fn.Key]uint32{}, specs: map[fn.Key]*skipperpb.Function{},
	}
	e.life, e.kill = context.WithCancel(context.Background())
	e.table = table.New(table.Options{Subscriber: e, Staleness: staleness, Confirm: 5 * time.Second, Idle: 15 * time.Second, Now: time.Now()})
	g.ep = e
	g.trouble()
	w.say(g.name, "has extproc %s", e.id)
	w.after(w.upTo(0, heartbeatInterval), func() {
		w.every(heartbeatInterval, func() bool { e.beat(); return e.life.Err() == nil })
	})
}

// silent says that nobody has heard of a plain router for so long that it counts
// as gone: it has nothing but its heartbeats to be known by.
func (g *gateway) silent() bool {
	now := time.Now()
	return g.plain && now.Before(g.cutTil) && now.Sub(g.cutAt) >= heartbeatTimeout-2*heartbeatInterval
}

func (g *gateway) trouble() { g.troubleTil = time.Now().Add(sendsWithin) }

// killExtproc ends it without a word; Envoy lives on. A plain router has none:
// its requests end with it.
func (g *gateway) killExtproc() {
	e := g.ep
	if e == nil {
		return
	}
	g.w.say(g.name, "extproc %s is killed", e.id)
	g.ep = nil
	g.trouble()
	e.kill()
	if g.plain {
		for _, r := range g.w.requestsOf(g) {
			g.w.finish(r, "its router was killed")
		}
	}
	g.w.after(g.w.upTo(0, time.Second), e.disconnect)
	g.w.after(g.w.upTo(500*time.Millisecond, 5*time.Second), g.startExtproc)
}

// killEnvoy ends the whole gateway, and what it was doing.
func (w *world) killGateway(g *gateway) {
	w.say(g.name, "is killed")
	g.ended = true
	w.gateways = slices.DeleteFunc(w.gateways, func(other *gateway) bool { return other == g })
	if e := g.ep; e != nil {
		e.kill()
		e.disconnect()
	}
	for _, r := range w.requestsOf(g) {
		w.finish(r, "its gateway was killed")
	}
	g.hangUp()
}

// stopGateway ends one in good order: when its requests have ended it says so.
func (w *world) stopGateway(g *gateway) {
	w.say(g.name, "is to stop")
	w.gateways = slices.DeleteFunc(w.gateways, func(other *gateway) bool { return other == g })
	w.every(time.Second, func() bool {
		if len(w.requestsOf(g)) > 0 || time.Now().Before(g.cutTil) {
			return true
		}
		w.say(g.name, "says goodbye")
		if e := g.ep; e != nil {
			e.kill()
			if r, ok := e.target(); ok && !g.plain {
				r.heartbeat(&skipperpb.HeartbeatRequest{RouterIp: g.name, RouterId: e.id, EnvoyNodeId: g.name, Goodbye: true})
			}
			e.disconnect()
		}
		g.ended = true
		g.hangUp()
		return false
	})
}

// hangUp ends Envoy's stream of load reports.
func (g *gateway) hangUp() {
	if g.at != nil {
		g.at.loads.Ended(loads.Stream{Node: g.name, ID: g.stream})
	}
	g.at = nil
}

// lost tells that a replica is gone.
func (g *gateway) lost(r *replica) {
	if g.at == r {
		g.hangUp()
	}
	if e := g.ep; e != nil && e.at == r {
		e.disconnect()
		e.retry = time.Now().Add(g.w.upTo(0, 2*time.Second))
	}
}

// cutOff is a partition that each end notices in its time.
func (g *gateway) cutOff(d time.Duration) {
	w, e := g.w, g.ep
	if e == nil || time.Now().Before(g.cutTil) {
		return
	}
	w.say(g.name, "extproc %s is cut off for %s", e.id, d)
	g.cutAt, g.cutTil = time.Now(), time.Now().Add(d)
	e.notices = time.Now().Add(w.upTo(0, 10*time.Second))
	at, s := e.at, e.stream
	if at != nil {
		w.after(w.upTo(0, 20*time.Second), func() { at.lists.leave(s) })
	}
	w.after(d, g.trouble)
}

// deafen cuts Envoy off from whom it reports to.
func (g *gateway) deafen(d time.Duration) {
	w := g.w
	w.say(g.name, "reports nothing for %s", d)
	g.deafTil = time.Now().Add(d)
	at, id := g.at, g.stream
	g.at = nil
	if at != nil {
		w.after(w.upTo(0, 10*time.Second), func() { at.loads.Ended(loads.Stream{Node: g.name, ID: id}) })
	}
	w.after(d, g.trouble)
}

// tick is what happens each second: reports, sweeps, and connections anew.
func (g *gateway) tick() {
	now := time.Now()
	if now.Before(g.cutTil) || now.Before(g.deafTil) {
		g.trouble()
	}
	if !g.plain {
		g.report(now)
	}
	if e := g.ep; e != nil && !g.plain {
		e.tick(now)
	}
}

func (g *gateway) report(now time.Time) {
	w := g.w
	if g.at != nil && g.at.life.Err() != nil {
		g.hangUp()
	}
	if g.at == nil && !now.Before(g.deafTil) {
		if r, ok := w.anyServing(); ok {
			g.at = r
			g.stream++
		}
	}
	at, from := g.at, loads.Stream{Node: g.name, ID: g.stream}
	if at == nil {
		return
	}
	busy := w.busy(g)
	w.after(w.upTo(time.Millisecond, 200*time.Millisecond), func() {
		if g.at == at && g.stream == from.ID && at.life.Err() == nil {
			at.loads.Reported(from, time.Now(), busy)
		}
	})
}

// busy is what Envoy has in progress, as load reports name it.
func (w *world) busy(g *gateway) []loads.Busy {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []loads.Busy
	for uid, all := range w.open {
		n := uint32(0)
		addr := ""
		for r := range all {
			if r.ep.g == g && r.sent {
				n++
				addr = r.addr
			}
		}
		if n > 0 {
			out = append(out, loads.Busy{Cluster: xds.ShardClusterOf(xds.HTTP1, uid, shards), Addr: addr, InProgress: n})
		}
	}
	return out
}

func (w *world) anyServing() (*replica, bool) {
	var all []*replica
	for _, r := range w.replicas {
		if r.serving() {
			all = append(all, r)
		}
	}
	return oneOf(w.rnd, all)
}

// target is whom extproc calls now.
func (e *extproc) target() (*replica, bool) {
	if time.Now().Before(e.g.cutTil) {
		return nil, false
	}
	if e.at != nil && e.at.life.Err() == nil && e.at.serving() {
		return e.at, true
	}
	return e.g.w.anyServing()
}

func (e *extproc) tick(now time.Time) {
	cut := now.Before(e.g.cutTil)
	switch {
	case e.at != nil && !e.notices.IsZero() && !now.Before(e.notices):
		e.at, e.stream, e.notices = nil, nil, time.Time{} // the other end notices by itself
	case e.at == nil && !cut && now.After(e.retry):
		e.connect()
	}
	e.table.Sweep(now, e.at != nil && e.at.life.Err() == nil)
	e.renew(now)
}

func (e *extproc) connect() {
	r, ok := e.g.w.anyServing()
	if !ok {
		return
	}
	e.notices = time.Time{}
	e.at = r
	var s *stream
	s = r.lists.join(xds.ExtprocNode(e.id), func() {
		e.g.w.after(between(e.g.w.luck("push", e.id), time.Millisecond, 150*time.Millisecond), func() { e.deliver(r, s) })
	})
	e.stream = s
	for name := range e.wants {
		r.lists.subscribe(s, name)
	}
}

func (e *extproc) disconnect() {
	if e.at != nil && e.at.life.Err() == nil {
		e.at.lists.leave(e.stream)
	}
	e.at, e.stream = nil, nil
}

// deliver takes one push, and acknowledges it.
func (e *extproc) deliver(r *replica, s *stream) {
	if e.stream != s || e.life.Err() != nil || time.Now().Before(e.g.cutTil) {
		return
	}
	p, ok := r.lists.take(s)
	if !ok {
		return
	}
	e.table.Push(p.list, time.Now())
	e.g.w.after(e.g.w.upTo(time.Millisecond, 100*time.Millisecond), func() {
		if e.stream == s && !time.Now().Before(e.g.cutTil) {
			r.lists.acknowledge(s, p)
		}
	})
}

// Subscribe implements table.Subscriber; it is called by the goroutine of the test.
func (e *extproc) Subscribe(name string) {
	e.wants[name] = true
	at, s := e.at, e.stream
	if at != nil {
		e.g.w.after(e.g.w.upTo(time.Millisecond, 50*time.Millisecond), func() {
			if e.stream == s && e.wants[name] {
				at.lists.subscribe(s, name)
			}
		})
	}
}

// Unsubscribe implements table.Subscriber.
func (e *extproc) Unsubscribe(name string) {
	delete(e.wants, name)
	at, s := e.at, e.stream
	if at != nil {
		e.g.w.after(e.g.w.upTo(time.Millisecond, 50*time.Millisecond), func() {
			if e.stream == s && !e.wants[name] {
				at.lists.unsubscribe(s, name)
			}
		})
	}
}

// beat sends what is to be said in each interval.
func (e *extproc) beat() {
	if e.life.Err() != nil {
		return
	}
	now := time.Now().Add(e.g.clock)
	if e.g.plain {
		e.send(e.plainBeat(now))
		return
	}
	router := heartbeat.Router{IP: e.g.name, ID: e.id, EnvoyNodeID: e.g.name}
	for _, m := range heartbeat.Batches(e.table.Usage(time.Now()), router, heartbeatInterval, now) {
		e.send(m)
	}
}

func (e *extproc) send(m *skipperpb.HeartbeatRequest) {
	r, ok := e.target()
	if !ok || len(m.GetHeartbeats()) == 0 {
		return
	}
	e.g.w.after(e.g.w.upTo(time.Millisecond, 300*time.Millisecond), func() {
		if r.life.Err() == nil && !time.Now().Before(e.g.cutTil) {
			r.heartbeat(m)
		}
	})
}

// renew keeps up what Leases say: ours are renewed each second, and never late.
func (e *extproc) renew(now time.Time) {
	if e.at == nil || len(e.wants) == 0 {
		return
	}
	inStep := e.at.freshAt()
	for _, s := range e.at.lists.Subscribers() {
		if s.Node == e.stream.node && s.QuietAt.Before(inStep) {
			inStep = s.QuietAt
		}
	}
	e.g.w.mu.Lock()
	defer e.g.w.mu.Unlock()
	e.g.w.leases[xds.ExtprocNode(e.id)] = leased{now, inStep}
}
