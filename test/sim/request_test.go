package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"skipper/controller/withdraw"
	"skipper/extproc/header"
	"skipper/extproc/pick"
	"skipper/extproc/table"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// function is one, as its callers know it.
type function struct {
	name                       string
	key                        fn.Key
	pool                       *deployment
	lowest, highest, threshold uint32
	// metadata that callers name; others is what those of every other gateway do,
	// where it differs.
	metadata, others string
	rate             float64 // requests in a second
	longest          time.Duration
	steady           int // requests that are always in progress, once it is calm
	bad              bool
	rnd              *rand.Rand // for its traffic
	headers          map[string]*header.Function
}

func (f *function) header(g *gateway) *header.Function {
	metadata := f.metadata
	if f.others != "" && g.name[len(g.name)-1]%2 == 1 {
		metadata = f.others
	}
	h := f.headers[metadata]
	if h == nil {
		h = header.Of(&skipperpb.Function{
			Namespace: f.pool.namespace, Deployment: f.pool.name, Tenant: f.name, Oneshot: f.key.Oneshot, Metadata: metadata,
			Scale: &skipperpb.Scale{MinInstances: f.lowest, MaxInstances: f.highest, TargetInFlightRequests: f.threshold},
		})
		f.headers[metadata] = h
	}
	return h
}

// badLocked says that pods refuse the function now.
func (w *world) badLocked(k fn.Key) bool {
	return slices.ContainsFunc(w.functions, func(f *function) bool { return f.key == k && f.bad })
}

// request is one of a client.
type request struct {
	f     *function
	ep    *extproc
	came  time.Time
	takes time.Duration
	tries int
	not   []string // UIDs of instances that failed
	names []string // and their names
	lease table.Lease
	inst  *skipperpb.Instance
	uid   string
	addr  string
	sent  bool // Envoy has it
	runs  bool // the pod has it
	done  bool
}

// arrive is a request of some client.
func (w *world) arrive(f *function, takes time.Duration) *request {
	g, ok := oneOf(w.rnd, w.gateways)
	if !ok || g.ep == nil {
		return nil // 503
	}
	r := &request{f: f, ep: g.ep, came: time.Now(), takes: takes}
	w.try(r)
	return r
}

// arriveAt is arrive at the first of those gateways, if it lives.
func (w *world) arriveAt(f *function, takes time.Duration, those []*gateway) *request {
	if len(those) == 0 || those[0].ended || those[0].ep == nil {
		return w.arrive(f, takes)
	}
	r := &request{f: f, ep: those[0].ep, came: time.Now(), takes: takes}
	w.try(r)
	return r
}

// try finds an instance for the request.
func (w *world) try(r *request) {
	e := r.ep
	r.tries++
	if r.done || r.tries > 6 || e.life.Err() != nil || time.Since(r.came) > holdTimeout {
		r.done = true
		return
	}
	h := r.f.header(e.g)
	if e.g.plain || r.f.key.Oneshot {
		w.ask(r, &ask{h: h, waiting: []*request{r}})
		return
	}
	f := e.table.Function(h) // as its client names it by now
	if !e.table.Stale() {
		if l, ok := pick1(w, f, r); ok {
			w.send(r, l, l.Instance.Proto)
			return
		}
	}
	if a := e.asks[r.f.key]; a != nil {
		a.waiting = append(a.waiting, r)
		return
	}
	a := &ask{h: h, waiting: []*request{r}, exclude: r.names}
	e.asks[r.f.key] = a
	w.ask(r, a)
}

func pick1(w *world, f *table.Function, r *request) (table.Lease, bool) {
	return pick.Acquire(f, pick.Want{Not: r.not, Now: time.Now()}, w.rnd.Uint64)
}

// ask is a call of GetInstance and who waits for it.
type ask struct {
	h       *header.Function
	waiting []*request
	exclude []string
}

// ask calls GetInstance; the answer is taken by the goroutine of the test.
func (w *world) ask(r *request, a *ask) {
	e := r.ep
	to, ok := e.target()
	there, back := w.upTo(time.Millisecond, 100*time.Millisecond), w.upTo(time.Millisecond, 200*time.Millisecond)
	within := holdTimeout
	if w.rnd.IntN(20) == 0 {
		within = w.upTo(0, 2*time.Second) // the client leaves
	}
	w.calls.Go(func() {
		ctx, cancel := context.WithTimeout(e.life, within)
		defer cancel()
		var answer *skipperpb.GetInstanceResponse
		err := errors.New("no controller is reached")
		timer := time.NewTimer(there)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		if ok && ctx.Err() == nil {
			answer, err = to.getInstance(ctx, &skipperpb.GetInstanceRequest{Function: a.h.Spec, ExcludeInstanceNames: a.exclude})
		}
		if err == nil && a.h.Key.Oneshot {
			w.mu.Lock()
			w.replied[answer.GetInstance().GetUid()] = true
			w.oracle.touched[answer.GetInstance().GetUid()] = time.Now()
			w.mu.Unlock()
		}
		w.after(back, func() { w.answered(e, a, answer.GetInstance(), err) })
	})
}

func (w *world) answered(e *extproc, a *ask, i *skipperpb.Instance, err error) {
	if e.asks[a.h.Key] == a {
		delete(e.asks, a.h.Key)
	}
	if e.life.Err() != nil {
		return // and a oneshot's pod is an orphan
	}
	if err != nil || time.Now().Before(e.g.cutTil) {
		w.again(a, time.Second)
		return
	}
	if e.g.plain {
		w.send(a.waiting[0], table.Lease{}, i)
		return
	}
	f := e.table.Again(a.h)
	known := f.Learn(i, time.Now())
	if known == nil {
		w.again(a, 100*time.Millisecond)
		return
	}
	for _, r := range a.waiting {
		if a.h.Key.Oneshot || e.table.Stale() {
			w.send(r, e.table.Hold(a.h, known), i)
			continue
		}
		if l, ok := pick1(w, f, r); ok {
			w.send(r, l, l.Instance.Proto)
		} else {
			w.after(100*time.Millisecond, func() { w.try(r) })
		}
	}
}

func (w *world) again(a *ask, in time.Duration) {
	for _, r := range a.waiting {
		w.after(in, func() { w.try(r) })
	}
}

// send gives the request to Envoy, and Envoy to the pod. From now on it counts.
func (w *world) send(r *request, l table.Lease, i *skipperpb.Instance) {
	r.lease, r.inst, r.uid, r.addr, r.sent = l, i, i.GetUid(), i.GetAddr(), false
	if r.done { // its client has left meanwhile
		r.lease.Release()
		if r.f.key.Oneshot {
			w.release(r)
		}
		return
	}
	w.mu.Lock()
	if w.open[r.uid] == nil {
		w.open[r.uid] = map[*request]struct{}{}
	}
	w.open[r.uid][r] = struct{}{}
	w.mu.Unlock()
	if e := r.ep; e.g.plain {
		e.sums[r.f.key]++
		e.specs[r.f.key] = r.f.header(e.g).Spec
	}
	w.after(w.upTo(0, 20*time.Millisecond), func() {
		r.sent = true
		w.after(w.upTo(0, 100*time.Millisecond), func() { w.reach(r) })
	})
}

// reach is the request's arrival at the pod.
func (w *world) reach(r *request) {
	if r.done || !r.sent {
		return
	}
	refused := w.take(r)
	if !refused {
		if w.calm && r.came.Before(w.calmAt) {
			r.takes = min(r.takes, leaveWithin) // its client leaves, as those of the others do
		}
		w.after(r.takes, func() { w.finish(r, "") })
		return
	}
	w.close(r)
	r.not, r.names = append(r.not, r.uid), append(r.names, r.inst.GetName())
	if r.f.key.Oneshot {
		r.done = true
		w.release(r)
		return
	}
	w.after(10*time.Millisecond, func() { w.try(r) })
}

// take hands the request to the pod at its address; true: that refuses it.
func (w *world) take(r *request) (refused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.bodies[r.uid]
	if b == nil || !b.alive {
		return true
	}
	if b.function != r.f.key {
		if zero := (fn.Key{}); b.function != zero && !w.broken.noTests {
			w.violateLocked("1", "request of %s reached pod %s of %s", r.f.key, r.uid, b.function)
		}
		return true
	}
	b.requests++
	r.runs = true
	w.served++
	w.oracle.countLocked(r, 1)
	if r.f.key.Oneshot && b.requests > 1 {
		w.violateLocked("2", "oneshot pod %s got request %d", r.uid, b.requests)
	}
	return false
}

// close ends that the request counts on its pod; false: it does on none.
func (w *world) close(r *request) (was bool) {
	w.mu.Lock()
	if _, was = w.open[r.uid][r]; !was {
		w.mu.Unlock()
		return false
	}
	if delete(w.open[r.uid], r); len(w.open[r.uid]) == 0 {
		delete(w.open, r.uid)
	}
	w.oracle.touched[r.uid] = time.Now()
	if r.runs {
		r.runs = false
		w.oracle.countLocked(r, -1)
	}
	w.mu.Unlock()
	if r.ep.g.plain {
		r.ep.sums[r.f.key]--
	}
	r.lease.Release()
	r.sent = false
	return true
}

// finish ends the request; empty: it was answered.
func (w *world) finish(r *request, why string) {
	if r.done {
		return
	}
	if why != "" {
		w.say("request", "of %s on %s ends: %s", r.f.name, r.uid, why)
	}
	r.done = true
	if w.close(r) && r.f.key.Oneshot {
		w.release(r)
	}
}

// release gives a oneshot's pod back, unless extproc has died.
func (w *world) release(r *request) {
	e, uid := r.ep, r.uid
	if e.life.Err() != nil {
		return
	}
	to, ok := e.target()
	if !ok {
		return // left to the net
	}
	w.mu.Lock()
	w.oracle.released[uid] = true
	w.mu.Unlock()
	w.calls.Go(func() {
		for range 3 {
			ctx, cancel := context.WithTimeout(e.life, 3*time.Second)
			_, err := to.server.ReleaseInstance(ctx, &skipperpb.ReleaseInstanceRequest{Instance: r.inst})
			cancel()
			if err == nil || e.life.Err() != nil || !to.rest(e.life, time.Second) {
				return
			}
		}
	})
}

// runningLocked are the requests that the pod has.
func (w *world) runningLocked(uid string) []*request {
	var out []*request
	for r := range w.open[uid] {
		if r.runs {
			out = append(out, r)
		}
	}
	return out
}

func (w *world) requestsOf(g *gateway) []*request {
	return w.requests(func(r *request) bool { return r.ep.g == g })
}

// requests are those in progress, the oldest first.
func (w *world) requests(which func(*request) bool) []*request {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*request
	for _, all := range w.open {
		for r := range all {
			if which(r) {
				out = append(out, r)
			}
		}
	}
	slices.SortFunc(out, func(a, b *request) int { return a.came.Compare(b.came) })
	return out
}

// plainBeat says how many requests there are, and not where.
func (e *extproc) plainBeat(now time.Time) *skipperpb.HeartbeatRequest {
	m := &skipperpb.HeartbeatRequest{RouterIp: e.g.name}
	for _, f := range e.g.w.functions {
		if spec := e.specs[f.key]; spec != nil {
			m.Heartbeats = append(m.Heartbeats, &skipperpb.Heartbeat{Function: spec, Timestamp: timestamppb.New(now), InFlightRequests: e.sums[f.key]})
			if e.sums[f.key] == 0 {
				delete(e.specs, f.key)
			}
		}
	}
	return m
}

// recalled is what Leases tell a replica that starts.
func (w *world) recalled() []withdraw.Past {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []withdraw.Past
	for node, l := range w.leases {
		out = append(out, withdraw.Past{Node: node, InTouch: l.inTouch, InStep: l.inStep})
	}
	return out
}

func (w *world) endLease(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.leases, node)
}

func (f *function) String() string {
	return fmt.Sprintf("%s [%d, %d] / %d", f.name, f.lowest, f.highest, f.threshold)
}
