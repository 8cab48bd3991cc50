package withdraw

import (
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"skipper/controller/pool"
	"skipper/test/race"
	"skipper/xds"
)

const (
	// modelStep is the time between two rounds of the world.
	modelStep = 50 * time.Millisecond
	// modelCalm is that time once nothing goes wrong any more.
	modelCalm = time.Second
	// modelSlack is how long a connection may outlive the renewal of its Lease.
	modelSlack = 31 * time.Second
	// extprocNotices and serverNotices are how long each end of a connection
	// takes at most to find that it is cut.
	extprocNotices = 15 * time.Second
	serverNotices  = 21 * time.Second
)

// modelRounds is how many rounds things go wrong for: about ten minutes, and
// under the race detector, which a long bubble can crash, less than two.
func modelRounds() int {
	if race.Enabled {
		return 2_000
	}
	return 12_000
}

// live runs the world, and then lets it come to rest.
func (w *model) live() {
	defer func() {
		for _, r := range w.replicas {
			r.stop()
		}
	}()
	for range 3 {
		w.startReplica()
	}
	for i := range 5 {
		w.extprocs = append(w.extprocs, newModelExtproc(xds.ExtprocNode(fmt.Sprint("e", i))))
	}
	rounds := modelRounds()
	for range rounds {
		w.round(true)
	}
	w.loss = 0
	for range int((modelStaleness + 2*notice + 2*lingers) / modelCalm) {
		w.round(false)
	}
	w.settled()
	w.t.Logf("%d claims, %d refusals", w.claims, w.refused)
	if w.claims < rounds/240 || w.refused < rounds/600 {
		w.t.Errorf("%d claims and %d refusals show nothing", w.claims, w.refused)
	}
}

func (w *model) round(chaos bool) {
	if chaos {
		w.upset()
		w.disturb()
	}
	w.finish()
	w.informers()
	w.connections()
	w.keepLeases()
	for _, e := range w.extprocs {
		if chaos && w.rand.IntN(20) == 0 {
			w.ask(e)
		}
	}
	step := modelCalm
	if chaos {
		step = modelStep
	}
	<-time.NewTimer(step).C
	synctest.Wait()
	w.check(time.Now())
}

// upset changes pods.
func (w *model) upset() {
	switch w.rand.IntN(30) {
	case 0, 1, 2:
		w.create()
	case 3, 4:
		w.end()
	}
}

// disturb breaks what connects, one thing in a round at most.
func (w *model) disturb() {
	n := w.rand.IntN(w.odds)
	for _, d := range []struct {
		odds int
		do   func(now time.Time)
	}{
		{4, w.cut}, {3, w.move}, {2, w.killExtproc}, {1, w.farewell}, {2, w.freeze}, {1, w.killReplica}, {1, w.restartAll},
	} {
		if n < d.odds {
			d.do(time.Now())
			break
		}
		n -= d.odds
	}
	if len(w.replicas) < 3 && w.rand.IntN(200) == 0 {
		w.startReplica()
	}
}

// cut is a partition that nobody notices at once.
func (w *model) cut(now time.Time) {
	if e, ok := pick(w.rand, w.extprocs); ok && e.at != nil && e.cut.IsZero() {
		e.cut = now
	}
}

// move ends a connection as for its age.
func (w *model) move(now time.Time) {
	if e, ok := pick(w.rand, w.extprocs); ok && e.at != nil && e.cut.IsZero() {
		w.disconnect(e, now)
	}
}

// freeze stops an informer for a while.
func (w *model) freeze(now time.Time) {
	if r, ok := pick(w.rand, w.replicas); ok {
		r.frozen = now.Add(time.Duration(w.rand.IntN(60)) * time.Second)
	}
}

func (w *model) killExtproc(now time.Time) {
	i := w.rand.IntN(len(w.extprocs))
	e := w.extprocs[i]
	if e.dead || e.at == nil {
		return
	}
	e.dead, e.cut = true, now
	w.made++
	w.extprocs = append(w.extprocs, newModelExtproc(xds.ExtprocNode(fmt.Sprint("e", w.made))))
}

func (w *model) farewell(now time.Time) {
	i := w.rand.IntN(len(w.extprocs))
	e := w.extprocs[i]
	if e.dead || !e.cut.IsZero() || e.at == nil {
		return
	}
	e.dead = true
	for _, r := range w.replicas {
		r.tracker.Goodbye(e.node[len(xds.ExtprocPrefix):])
	}
	delete(w.leases, e.node)
	e.at.server.leave(e.stream, now)
	w.made++
	w.extprocs[i] = newModelExtproc(xds.ExtprocNode(fmt.Sprint("e", w.made)))
}

func (w *model) killReplica(now time.Time) {
	if len(w.replicas) == 0 {
		return
	}
	r := w.replicas[0]
	r.stop()
	w.mu.Lock()
	w.replicas = w.replicas[1:]
	w.mu.Unlock()
	w.leave[r.ip] = now.Add(time.Duration(w.rand.IntN(20)) * time.Second)
	for _, e := range w.extprocs {
		if e.at == r && !e.dead {
			e.at, e.stream, e.cut, e.away = nil, nil, time.Time{}, now.Add(time.Duration(w.rand.IntN(3000))*time.Millisecond)
		}
	}
}

func (w *model) restartAll(now time.Time) {
	for len(w.replicas) > 0 {
		w.killReplica(now)
	}
	w.mu.Lock()
	clear(w.ring)
	w.mu.Unlock()
	for range 3 {
		w.startReplica()
	}
}

// informers show what is due. All namespaces of one replica move together.
func (w *model) informers() {
	now := time.Now()
	for _, r := range w.replicas {
		if now.After(r.frozen) {
			w.show(r, w.rand.IntN(12))
		}
	}
	for ip, at := range w.leave {
		if now.After(at) {
			w.mu.Lock()
			delete(w.ring, ip)
			w.mu.Unlock()
			delete(w.leave, ip)
		}
	}
}

// connections carries pushes, and notices what is cut.
func (w *model) connections() {
	now := time.Now()
	for _, e := range w.extprocs {
		switch {
		case e.at != nil && e.cut.IsZero():
			e.heard = now
			e.at.server.deliver(e.stream, w.rand.IntN(3), e.push)
		case e.at != nil:
			w.cutOff(e, now)
		case !e.dead && now.After(e.away):
			w.reconnect(e)
		}
	}
	w.extprocs = slices.DeleteFunc(w.extprocs, func(e *modelExtproc) bool { return e.dead && e.at == nil })
}

// cutOff lets both ends notice in their time: the one that is later here.
func (w *model) cutOff(e *modelExtproc, now time.Time) {
	if since := now.Sub(e.cut); since < extprocNotices && !e.dead {
		e.heard = now
	} else if since >= serverNotices || w.rand.IntN(400) == 0 {
		w.disconnect(e, now)
		e.away = now.Add(time.Duration(w.rand.IntN(60)) * time.Second)
		if w.rand.IntN(4) == 0 {
			e.away = now.Add(time.Duration(w.rand.IntN(12)) * time.Minute)
		}
	}
}

func (w *model) disconnect(e *modelExtproc, now time.Time) {
	if slices.Contains(w.replicas, e.at) {
		e.at.server.leave(e.stream, now)
	}
	e.at, e.stream, e.cut = nil, nil, time.Time{}
}

func (w *model) reconnect(e *modelExtproc) {
	r, ok := pick(w.rand, w.replicas)
	if !ok {
		return
	}
	if !e.usable(time.Now(), modelStaleness) {
		clear(e.table) // it waits for lists before it uses its table again
	}
	e.at, e.stream = r, r.server.join(e.node)
	for name := range e.wants {
		r.server.subscribe(e.stream, name)
	}
}

// keepLeases renews as each replica sees it.
func (w *model) keepLeases() {
	now := time.Now()
	for _, r := range w.replicas {
		fresh := r.fresh()
		for _, s := range r.server.Subscribers() {
			at := s.QuietAt
			if fresh.Before(at) {
				at = fresh
			}
			if p := w.leases[s.Node]; now.Add(modelSlack).Sub(p.InTouch) > 30*time.Second {
				w.leases[s.Node] = Past{Node: s.Node, InTouch: now.Add(modelSlack), InStep: at}
			}
		}
	}
}

// settled wants everything to be usable in the end.
func (w *model) settled() {
	for _, r := range w.replicas {
		w.show(r, len(w.log))
	}
	<-time.NewTimer(10 * time.Second).C
	synctest.Wait()
	for _, r := range w.replicas {
		r.tracker.mu.Lock()
		if b := r.tracker.book; b.countOpen() > 0 || len(b.lost) > 0 {
			w.t.Errorf("seed %d: replica %s has %d open withdrawals and %d lost extprocs for ever", w.seed, r.ip, b.countOpen(), len(b.lost))
		}
		r.tracker.mu.Unlock()
		for _, p := range sortedPods(w.pods) {
			if ok, why := r.tracker.Allowed(p); !ok && p.State() == pool.Unassigned {
				w.t.Errorf("seed %d: replica %s refuses pod %s: %s", w.seed, r.ip, p.UID, why)
			}
		}
	}
}
