package lifetime

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"skipper/envoy"
	"skipper/envoy/envoytest"
)

// deadlinePath is asked for by a client that waits a moment only.
const deadlinePath = "/deadline"

// shortDeadline is long enough for the pod to be reached: it is the end that is
// tried, not the time.
const shortDeadline = 2 * time.Second

// play is one request of a row.
type play struct {
	row    row
	wire   wire
	mode   mode
	tenant string
}

func (p play) pool() string {
	if p.row.pool != "" {
		return p.row.pool
	}
	return p.wire.pool()
}

func (p play) function() http.Header {
	switch p.row.header {
	case "-":
		return http.Header{}
	case "":
		return http.Header{envoy.HeaderFunction: {header(p.pool(), p.tenant, p.mode == oneshot)}}
	}
	return http.Header{envoy.HeaderFunction: {p.row.header}}
}

func (w *world) call(p play, s *stage) *call {
	c := &call{addr: w.gateway(), wire: p.wire, conduct: p.row.conduct, method: p.row.method, path: p.row.path, act: p.row.act, headers: p.function(), stage: s}
	if c.path == "" {
		c.path = "/x"
	}
	if p.row.path == deadlinePath {
		c.timeout = shortDeadline
	}
	return c
}

// scene is plays at the same time.
type scene struct {
	*testing.T
	*world
	stage *stage
	plays []play
	leave context.CancelFunc // all clients leave
	gate  chan struct{}
}

// outcome is what was seen of a scene.
type outcome struct {
	Saw      []string
	Ends     tally
	Taken    int // pods of oneshots
	Released int
}

// run plays and returns what was seen when nothing is in progress any more.
func (w *world) run(t *testing.T, plays []play, wanted int) outcome {
	t.Helper()
	w.warmUp(t, plays)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	s := &scene{T: t, world: w, stage: newStage(), plays: plays, leave: leave}
	w.pods.set(s.stage)
	before, process := w.extproc.metrics(t).ends(), w.extproc
	happening := events[plays[0].row.event]
	if happening.before != nil {
		happening.before(s)
	}
	out := outcome{Saw: make([]string, len(plays))}
	var clients sync.WaitGroup
	for i, p := range plays {
		clients.Go(func() { out.Saw[i] = w.call(p, s.stage).do(ctx) })
	}
	if happening.during != nil {
		happening.during(s)
	}
	clients.Wait()
	if happening.after != nil {
		happening.after(s)
	}
	if w.extproc != process {
		before = w.extproc.fresh
	}
	out.Ends = w.settle(t, before, wanted).minus(before)
	out.Taken, out.Released = w.accounts(t, plays)
	return out
}

// warmUp sends a request of each warm function.
func (w *world) warmUp(t *testing.T, plays []play) {
	t.Helper()
	for _, p := range plays {
		if p.mode == warm {
			first := p
			first.row = row{act: "answer", pool: p.pool()}
			first.wire = http1
			if saw := w.call(first, newStage()).do(t.Context()); saw != "200" {
				t.Fatalf("warming up: %s", saw)
			}
		}
	}
	w.settle(t, tally{}, 0)
}

// settle waits until nothing is in progress and that many streams have ended.
func (w *world) settle(t *testing.T, before tally, wanted int) tally {
	t.Helper()
	var m metrics
	soon(t, fmt.Sprintf("nothing is in progress, %d streams have ended", wanted), func() bool {
		m = w.extproc.metrics(t)
		return m.idle() && m.ends().minus(before).streams() >= wanted
	})
	return m.ends()
}

// soon waits for what follows at once, and fails the test if it does not come.
func soon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-timer.C:
			t.Errorf("waited %v in vain until: %s", settleTime, what)
			return
		}
	}
}

// settleTime is for a busy machine; a lease of a lost stream is over before.
const settleTime = 15 * time.Second

// accounts waits until the controller hears of nothing in progress, and counts
// the oneshots' pods.
func (w *world) accounts(t *testing.T, plays []play) (taken, released int) {
	t.Helper()
	want := plays[0].row.want.pods.released
	for _, p := range plays {
		soon(t, "the controller hears of nothing in progress for "+p.tenant, func() bool { return w.inFlight(p.tenant) == 0 })
		if p.mode != oneshot {
			continue
		}
		enough := func() bool { _, n := w.pooled(p.tenant); return n >= want }
		soon(t, fmt.Sprintf("%d pods are released by %s", want, p.tenant), enough)
		a, b := w.pooled(p.tenant)
		taken, released = taken+a, released+b
	}
	return taken, released
}

// expected is what n plays of the same row come to.
func expected(version string, plays []play) outcome {
	w := plays[0].row.wanted(version)
	out := outcome{}
	for _, p := range plays {
		out.Saw = append(out.Saw, w.saw)
		switch w.how {
		case over, either:
			out.Ends.over += w.streams
		case lost:
			out.Ends.lost += w.streams
		}
		if p.mode == oneshot {
			out.Taken, out.Released = out.Taken+w.pods.taken, out.Released+w.pods.released
		}
	}
	return out
}

// folded counts what ended in either way as if it had ended in order.
func (o outcome) folded(w want) outcome {
	if w.how != either || o.Released > o.Taken {
		return o
	}
	o.Ends.over, o.Ends.lost, o.Released = o.Ends.over+o.Ends.lost, 0, 0
	return o
}

func (r row) wanted(version string) want {
	if w, ok := r.older[version]; ok {
		return w
	}
	return r.want
}

// scenes are the plays of a row: one after the other, or all at once.
func (r row) scenes(n int) [][]play {
	modes := r.modes
	if modes == nil {
		modes = []mode{cold, warm, oneshot}
		if r.event != "" {
			modes = []mode{warm, oneshot}
		}
	}
	if events[r.event].cold {
		modes = untilWarm
	}
	var all []play
	for i, wire := range r.wires {
		for _, m := range modes {
			all = append(all, play{row: r, wire: wire, mode: m, tenant: fmt.Sprintf("row-%d-%d-%s", n, i, m)})
		}
	}
	if r.event != "" {
		return [][]play{all}
	}
	var out [][]play
	for _, p := range all {
		out = append(out, []play{p})
	}
	return out
}

func TestEnds(t *testing.T) {
	t.Parallel() // with the requests that are held, which mostly wait
	for _, version := range []string{deployed, envoy139, envoy138} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			everyEnd(t, version)
		})
	}
}

func everyEnd(t *testing.T, version string) {
	w, impatient := newWorld(t, version, patient()), newWorld(t, version, hasty())
	for n, r := range rows() {
		t.Run(r.end, func(t *testing.T) {
			place := w
			if events[r.event].hasty {
				place = impatient
			}
			for _, plays := range r.scenes(n) {
				want := expected(version, plays)
				got := place.run(t, plays, want.Ends.streams())
				if diff := cmp.Diff(want, got.folded(r.wanted(version)), cmp.AllowUnexported(tally{})); diff != "" {
					t.Errorf("%s %s (-want +got):\n%s", plays[0].wire, plays[0].mode, diff)
				}
			}
		})
	}
	for _, w := range []*world{w, impatient} {
		if twice := w.releasedTwice(); len(twice) > 0 {
			t.Errorf("released more than once: %v", twice)
		}
	}
}

// hasty ends by itself what is idle.
func hasty() limits {
	l := patient()
	l.hold, l.idle = 2500*time.Millisecond, 3*time.Second
	return l
}

// event is what happens while requests are in progress.
type event string

const (
	proceed            event = "proceed"      // pods go on
	idle               event = "idle"         // nothing moves
	noPods             event = "no pods"      // there are no pods
	noPodsLeave        event = "none, leave"  // nor does the client wait
	killExtproc        event = "kill extproc" // while pods work
	killExtprocEarly   event = "kill extproc early"
	stopExtproc        event = "stop extproc"
	stopExtprocBriefly event = "stop extproc, end"
	stopExtprocPod     event = "stop extproc, pod"
	stopExtprocEarly   event = "stop extproc early"
	drainEnvoy         event = "drain Envoy"
	stopEnvoy          event = "stop Envoy"
	killEnvoy          event = "kill Envoy"
	killEnvoyEarly     event = "kill Envoy early"
)

// happening is an event in deeds.
type happening struct {
	before, during, after func(*scene)
	hasty                 bool // in the world of short times
	cold                  bool // functions must have no pod
}

var events = map[event]happening{
	proceed:            {during: func(s *scene) { s.arrived(); close(s.stage.proceed) }},
	idle:               {hasty: true},
	noPods:             {before: (*scene).noPods, after: (*scene).morePods, hasty: true, cold: true},
	noPodsLeave:        {before: (*scene).noPods, during: func(s *scene) { s.asked(); s.leave(); s.unasked() }, after: (*scene).morePods, cold: true},
	killExtproc:        {during: func(s *scene) { s.arrived(); s.replace(syscall.SIGKILL); close(s.stage.proceed) }},
	killExtprocEarly:   {before: (*scene).noPods, during: func(s *scene) { s.asked(); s.replace(syscall.SIGKILL); s.unasked() }, after: (*scene).morePods, cold: true},
	stopExtproc:        {during: func(s *scene) { s.arrived(); s.replace(syscall.SIGTERM); close(s.stage.proceed) }},
	stopExtprocBriefly: {during: func(s *scene) { s.arrived(); s.stopping(); close(s.stage.proceed); s.replace(syscall.SIGTERM) }},
	stopExtprocPod:     {before: (*scene).noPods, during: func(s *scene) { s.asked(); s.stopping(); s.morePods(); s.replace(syscall.SIGTERM) }, cold: true},
	stopExtprocEarly:   {before: (*scene).noPods, during: func(s *scene) { s.asked(); s.replace(syscall.SIGTERM) }, after: (*scene).morePods, cold: true},
	drainEnvoy:         {during: (*scene).drain, after: (*scene).nextEnvoy},
	stopEnvoy:          {during: func(s *scene) { s.arrived(); s.envoy.Stop() }, after: (*scene).nextEnvoy},
	killEnvoy:          {during: func(s *scene) { s.arrived(); s.killEnvoy() }, after: (*scene).nextEnvoy},
	killEnvoyEarly:     {before: (*scene).noPods, during: func(s *scene) { s.asked(); s.killEnvoy(); s.unasked(); s.morePods() }, after: (*scene).nextEnvoy, cold: true},
}

// arrived waits until pods have all requests, and where they have begun to
// answer, until clients have a piece of it.
func (s *scene) arrived() {
	s.Helper()
	s.each(s.stage.reached, "the requests do not reach the pods")
	if act := s.plays[0].row.act; strings.HasPrefix(act, "stream") || strings.HasPrefix(act, "bye") {
		s.each(s.stage.answered, "the answers do not reach the clients")
	}
}

func (s *scene) each(signs <-chan struct{}, problem string) {
	s.Helper()
	timer := time.NewTimer(longWait)
	defer timer.Stop()
	for range s.plays {
		select {
		case <-signs:
		case <-timer.C:
			s.Fatal(problem)
		}
	}
}

// asked waits until the controller is asked for all functions.
func (s *scene) asked() {
	s.Helper()
	envoytest.Eventually(s, "the controller is asked", func() bool {
		return see(s.controller, func() int { return s.waiting }) == len(s.plays)
	})
}

// unasked waits until no question is open any more.
func (s *scene) unasked() {
	s.Helper()
	soon(s.T, "the questions are given up", func() bool { return see(s.controller, func() int { return s.waiting }) == 0 })
}

func (s *scene) noPods()   { s.gate = s.shut() }
func (s *scene) morePods() { s.open(s.gate) }

// replace ends extproc, and starts the next.
func (s *scene) replace(signal syscall.Signal) {
	s.Helper()
	s.restart(s.T, signal)
	if signal == syscall.SIGKILL {
		s.forget()
	}
}

// stopping tells extproc to stop, and returns when it has heard.
func (s *scene) stopping() {
	s.Helper()
	_ = s.extproc.cmd.Process.Signal(syscall.SIGTERM)
	envoytest.Eventually(s, "extproc stops", func() bool {
		_, err := fetch(s.extproc.web + "/readyz")
		return err != nil
	})
}

func (s *scene) drain() {
	s.Helper()
	s.arrived()
	for _, path := range []string{"/healthcheck/fail", "/drain_listeners?graceful"} {
		if code, body, err := s.envoy.Admin(s.Context(), http.MethodPost, path); err != nil || code != http.StatusOK {
			s.Errorf("%s: %d %s %v", path, code, body, err)
		}
	}
	close(s.stage.proceed)
}

func (s *scene) killEnvoy() {
	_ = syscall.Kill(s.envoy.Pid(), syscall.SIGKILL)
	s.envoy.Stop() // waits for its end
}

func (s *scene) nextEnvoy() {
	s.Helper()
	s.envoy.Stop()
	s.startEnvoy()
}
