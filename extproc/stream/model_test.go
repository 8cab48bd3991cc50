package stream

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	skipperpb "skipper/proto"

	"skipper/extproc/hold"
)

// modelled is what a naive reading of the rules says of one request.
type modelled struct {
	function *skipperpb.Function
	first    *leg
	later    []*leg // its open further streams
	last     *leg   // the stream opened last
	taken    bool   // the answer of last is taken up
	id       string
	current  string // where it is counted; empty for nowhere
	tried    []string
	open     bool // by its first stream
	lost     time.Time
}

// world is extproc beside the model of it.
type world struct {
	*virtual
	t        *testing.T
	random   *rand.Rand
	version  atomic.Uint64                    // pods are made for several questions at once
	pods     map[string][]*skipperpb.Instance // by tenant, as pushed last
	all      []*modelled
	released []string // what should be
	got      []string
}

// podOf makes a fresh pod.
func (w *world) podOf(f *skipperpb.Function) *skipperpb.Instance {
	v := w.version.Add(1)
	return instance(f, int(v), v)
}

func (w *world) functions() []*skipperpb.Function {
	return []*skipperpb.Function{function("a"), function("b"), oneshot()}
}

// TestPassesAgreeWithTheModel plays random requests with random further passes
// and ends in any order, while pods come and go.
func TestPassesAgreeWithTheModel(t *testing.T) {
	for seed := range uint64(25) {
		w := &world{t: t, random: rand.New(rand.NewPCG(seed, 5)), pods: map[string][]*skipperpb.Instance{}}
		c := &fakeController{answer: func(_ context.Context, _ int, q *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
			return w.podOf(q.GetFunction()), nil
		}}
		inBubble(t, c, func(t *testing.T, v *virtual) {
			w.virtual, w.t = v, t
			for step := range 150 {
				w.step()
				if w.check(); t.Failed() {
					t.Logf("seed %d, step %d", seed, step)
					break
				}
			}
			w.finish()
		}, func(o *Options, _ *hold.Options) { slowly(o) })
		if t.Failed() {
			return
		}
	}
}

func (w *world) step() {
	switch w.random.IntN(12) {
	case 0, 1, 2:
		w.begin()
	case 3, 4, 5, 6:
		w.another()
	case 7, 8:
		w.endLater()
	case 9:
		w.endFirst(w.random.IntN(3) > 0)
	case 10:
		w.push()
	case 11:
		elapse(time.Duration(w.random.IntN(3000)) * time.Millisecond)
		if w.random.IntN(4) == 0 {
			elapse(w.lease())
			w.table.Sweep(time.Now(), false)
		}
	}
	for _, m := range w.all {
		w.takeUp(m)
	}
}

func (w *world) lease() time.Duration { return 30 * time.Second }

func (w *world) begin() {
	f := w.functions()[w.random.IntN(3)]
	m := &modelled{function: f, first: w.first(f), open: true, taken: true}
	m.last, m.id, m.current = m.first, m.first.id(), m.first.uid()
	w.all = append(w.all, m)
}

// pick returns a random request that is allowed; nil where there is none.
func (w *world) pick(allowed func(*modelled) bool) *modelled {
	var some []*modelled
	for _, m := range w.all {
		if allowed(m) {
			some = append(some, m)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[w.random.IntN(len(some))]
}

// sent reports that Envoy could send the request somewhere, so that it may fail.
func (m *modelled) sent() bool { return m.last.uid() != "" }

func (w *world) another() {
	m := w.pick(func(m *modelled) bool { return m.open && m.sent() })
	if m == nil {
		return
	}
	cause := []string{unknownToEnvoy, triedAndFailed}[w.random.IntN(2)]
	if cause == triedAndFailed {
		m.tried = append(m.tried, m.current)
		if m.function.GetOneshot() {
			w.released, m.current = append(w.released, m.current), ""
		}
	}
	m.last, m.taken = w.later(m.id, cause), false
	m.later = append(m.later, m.last)
}

// takeUp moves the model on to an answer that came meanwhile.
func (w *world) takeUp(m *modelled) {
	l := m.last
	if m.taken || l.answer() == nil {
		return
	}
	m.taken = true
	uid := l.uid()
	if uid == "" || !m.open {
		return
	}
	if uid != m.current && slices.Contains(m.tried, uid) {
		w.t.Errorf("%s was tried and failed, and the controller has others", uid)
	}
	if l.id() != m.id {
		w.t.Errorf("request %s got the id %s", m.id, l.id())
	}
	m.current = uid
}

func (w *world) endLater() {
	m := w.pick(func(m *modelled) bool { return len(m.later) > 0 })
	if m == nil {
		return
	}
	n := w.random.IntN(len(m.later))
	l := m.later[n]
	if w.random.IntN(2) == 0 {
		l.over()
	} else {
		l.breaks()
	}
	m.later = slices.Delete(m.later, n, n+1)
}

func (w *world) endFirst(orderly bool) {
	m := w.pick(func(m *modelled) bool { return m.open })
	if m == nil {
		return
	}
	m.open = false
	if !orderly {
		m.first.breaks()
		m.lost = time.Now().Add(time.Minute)
		return
	}
	m.first.over()
	if m.function.GetOneshot() && m.current != "" {
		w.released = append(w.released, m.current)
	}
	m.current = ""
}

// push leaves some pods of a function, and adds some.
func (w *world) push() {
	f := w.functions()[w.random.IntN(2)]
	var pods []*skipperpb.Instance
	for _, p := range w.pods[f.GetTenant()] {
		if w.random.IntN(3) > 0 {
			pods = append(pods, p)
		}
	}
	for range w.random.IntN(3) {
		pods = append(pods, w.podOf(f))
	}
	w.pods[f.GetTenant()] = pods
	w.fillWith(f, w.version.Add(1), pods)
}

// check compares the counts and the released pods with the model.
func (w *world) check() {
	want := map[string]uint32{}
	for _, m := range w.all {
		if m.current != "" && (m.open || time.Now().Before(m.lost)) {
			want[m.current]++
		}
	}
	w.table.Sweep(time.Now(), false)
	if diff := cmp.Diff(want, w.inFlight()); diff != "" {
		w.t.Errorf("in flight (-want +got):\n%s", diff)
	}
	for len(w.rig.released) > 0 {
		w.got = append(w.got, <-w.rig.released)
	}
	slices.Sort(w.got)
	slices.Sort(w.released)
	if diff := cmp.Diff(w.released, w.got); diff != "" {
		w.t.Errorf("released (-want +got):\n%s", diff)
	}
}

func (w *world) finish() {
	for _, m := range w.all {
		if m.open {
			m.first.over()
		}
		for _, l := range m.later {
			l.over()
		}
	}
	elapse(2 * time.Minute)
	w.table.Sweep(time.Now(), false)
	if n := w.inFlight(); len(n) != 0 {
		w.t.Errorf("left in progress: %v", n)
	}
	if n := w.metric(w.t, "skipper_extproc_in_flight_requests", ""); n != 0 {
		w.t.Errorf("%v requests in flight by metric", n)
	}
	for b := range w.server.register.buckets {
		if r := w.server.register.buckets[b].first; r != nil {
			w.t.Errorf("request %s is registered still", r.id)
		}
	}
}
