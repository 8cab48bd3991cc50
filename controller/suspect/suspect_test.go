package suspect

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a watcher over a real view whose informer shows nothing more; the
// API server has what live says.
type world struct {
	t           *testing.T
	view        *pool.View
	watcher     *Watcher
	logs        *observer.ObservedLogs
	responsible bool

	mu    sync.Mutex
	live  map[string]pool.Pod // by name
	fail  error
	block bool
	reads []string
}

// inWorld runs a story in virtual time.
func inWorld(t *testing.T, pods int, story func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, view: pool.NewView(), live: map[string]pool.Pod{}}
		for i := range pods {
			p := pod(fmt.Sprint("u", i), nil)
			w.view.Apply(p)
			w.live[p.Name] = p
		}
		core, logs := observer.New(zapcore.InfoLevel)
		w.logs = logs
		w.watcher = New(Config{
			Pods: w.view, Live: w.read, Responsible: func(fn.Key) bool { return w.responsible },
			Registerer: prometheus.NewRegistry(), Log: zap.New(core),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.watcher.Run(ctx) }()
		synctest.Wait()
		story(w)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

func (w *world) read(ctx context.Context, _, name string) (pool.Pod, bool, error) {
	w.mu.Lock()
	w.reads = append(w.reads, name)
	p, ok := w.live[name]
	fail, block := w.fail, w.block
	w.mu.Unlock()
	if block {
		<-ctx.Done()
		return pool.Pod{}, false, ctx.Err()
	}
	if fail == nil && ok {
		w.view.ExpectWritten(p)
	}
	return p, ok, fail
}

func (w *world) hear(f *skipperpb.Function, failures map[string]uint32, forwardedFor ...string) {
	w.watcher.Hear(&skipperpb.HeartbeatRequest{
		ForwardedFor: forwardedFor,
		Heartbeats:   []*skipperpb.Heartbeat{{Function: f, FailuresByInstance: failures}},
	})
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) readsSoFar() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.reads)
}

func (w *Watcher) remembered() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.suspects)
}

// pass lets virtual time pass until all that is due in it is done.
func (w *world) pass(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

// want compares the reads of the API server and the lines of the log so far.
func (w *world) want(reads int, lines ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var said []string
	for _, l := range w.logs.All() {
		said = append(said, fmt.Sprint(l.ContextMap()["uid"], " ", l.ContextMap()["failures"], " ", l.ContextMap()["pod_is"]))
	}
	if len(w.reads) != reads {
		w.t.Errorf("read %v, want %d reads", w.reads, reads)
	}
	if diff := cmp.Diff(lines, said); diff != "" {
		w.t.Errorf("log (-want +got):\n%s", diff)
	}
}

func (w *world) routable(uid string) bool {
	p, ok := w.view.Pod(uid)
	return ok && p.Routable()
}

func TestPodThatIsGoneLeavesRoutingAtOnce(t *testing.T) {
	for name, what := range map[string]struct {
		live func(*pool.Pod) // nil: there is none
		want string
	}{
		"gone":     {nil, "u0 1 gone"},
		"deleted":  {func(p *pool.Pod) { p.Deleting, p.Version = true, 9 }, "u0 1 ending"},
		"failed":   {func(p *pool.Pod) { p.Phase, p.Version = "Failed", 9 }, "u0 1 ending"},
		"replaced": {func(p *pool.Pod) { p.UID = "new" }, "u0 1 gone"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 2, func(w *world) {
				w.set(func() {
					delete(w.live, "pod-u0")
					if what.live != nil {
						w.live["pod-u0"] = pod("u0", what.live)
					}
				})
				w.hear(owner, map[string]uint32{"u0": 1, "u1": 1})
				synctest.Wait()
				if w.routable("u0") || !w.routable("u1") {
					t.Errorf("routable: %v, %v, want false, true", w.routable("u0"), w.routable("u1"))
				}
				w.want(2, what.want)
				w.view.Apply(pod("u0", func(p *pool.Pod) { p.Version = 6 })) // the watch is still behind
				if w.routable("u0") {
					t.Error("a late event of the watch brought it back")
				}
			})
		})
	}
}

// A healthy pod stays, whatever routers say; a line is written each 10 s at most, a look taken each 2 s.
func TestHealthyPodStays(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		before, _ := w.view.Pod("u0")
		for range 100 {
			w.hear(owner, map[string]uint32{"u0": 2})
			w.hear(owner, map[string]uint32{"u0": 2})
			w.pass(100 * time.Millisecond)
		}
		w.want(6, "u0 4 well", "u0 396 well")
		w.pass(window)
		w.hear(owner, map[string]uint32{"u0": 2})
		synctest.Wait()
		w.want(7, "u0 4 well", "u0 396 well")
		if after, _ := w.view.Pod("u0"); !cmp.Equal(before.State(), after.State()) || !after.Routable() {
			t.Errorf("the pod is %v", after.State())
		}
		failures := w.watcher.metrics.failures
		if got := testutil.ToFloat64(failures.WithLabelValues(instance)); got != 402 {
			t.Errorf("%v failures counted, want 402", got)
		}
	})
}

func TestNobodyAccusesAnothersPod(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.set(func() { w.live = nil })
		w.hear(other, map[string]uint32{"u0": 9, "unknown": 9, "": 9})
		w.hear(owner, map[string]uint32{"u0": 0})
		w.pass(time.Minute)
		w.want(0)
		if !w.routable("u0") {
			t.Error("the pod left routing")
		}
		if got := testutil.ToFloat64(w.watcher.metrics.failures.WithLabelValues(stranger)); got != 27 {
			t.Errorf("%v failures of strangers counted, want 27", got)
		}
	})
}

// A forwarded message is for the responsible replica, and is counted where it came from.
func TestForwardedMessages(t *testing.T) {
	for _, responsible := range []bool{false, true} {
		inWorld(t, 1, func(w *world) {
			w.responsible = responsible
			w.hear(owner, map[string]uint32{"u0": 1}, "10.0.0.2", "10.0.0.3")
			synctest.Wait()
			w.want(map[bool]int{false: 0, true: 1}[responsible])
			for _, at := range []string{instance, stranger} {
				if n := testutil.ToFloat64(w.watcher.metrics.failures.WithLabelValues(at)); n != 0 {
					t.Errorf("%v failures of %s counted, want none", n, at)
				}
			}
		})
	}
}

// However many fail, and however slowly the API server answers: Hear does not wait, and work and memory are bounded.
func TestWorkIsBounded(t *testing.T) {
	inWorld(t, 2*mostSuspects, func(w *world) {
		w.set(func() { w.block = true })
		all := map[string]uint32{}
		for i := range 2 * mostSuspects {
			all[fmt.Sprint("u", i)] = 1
		}
		for range 10 {
			w.hear(owner, all) // each reads another part of it
		}
		if n := w.watcher.remembered(); n != mostSuspects {
			t.Errorf("%d suspects, want %d", n, mostSuspects)
		}
		w.pass(time.Minute)
		w.set(func() { w.block = false })
		slow := w.readsSoFar()
		w.pass(10 * time.Second)
		if fast := w.readsSoFar() - slow; slow > 13 || fast < 5*looksPerSecond || fast > 11*looksPerSecond {
			t.Errorf("%d reads in a minute without answers, %d in 10 s with", slow, fast)
		}
		w.pass(time.Hour)
		w.hear(owner, all)
		synctest.Wait()
		if n := w.watcher.remembered(); n > mostSuspects {
			t.Errorf("%d suspects after all were looked at", n)
		}
	})
}

// An API server that does not answer proves nothing.
func TestNoAnswerIsNoVerdict(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.set(func() { w.fail = errors.New("no answer") })
		w.hear(owner, map[string]uint32{"u0": 4})
		synctest.Wait()
		w.want(1, "u0 4 unread")
		if !w.routable("u0") {
			t.Error("the pod left routing")
		}
		w.set(func() { w.fail, w.live = nil, nil })
		w.hear(owner, map[string]uint32{"u0": 1})
		w.pass(pause)
		if w.routable("u0") {
			t.Error("the pod is still routed to")
		}
	})
}

func TestNothingIsHeardBeforeAndAfterRun(t *testing.T) {
	w := New(Config{Pods: pool.NewView(), Responsible: func(fn.Key) bool { return true }, Registerer: prometheus.NewRegistry(), Log: zap.NewNop()})
	w.suspect("u", 1, time.Now())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx); err != nil {
		t.Error(err)
	}
	w.suspect("u", 1, time.Now())
	if len(w.suspects) > 0 {
		t.Errorf("%d suspects that nobody looks at", len(w.suspects))
	}
}
