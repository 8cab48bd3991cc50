package table

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	skipperpb "skipper/proto"

	"skipper/extproc/header"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func function(tenant string) *header.Function {
	return header.Of(&skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: tenant, Scale: &skipperpb.Scale{MaxInstances: 3}})
}

// wishes records what is subscribed to.
type wishes struct {
	mu    sync.Mutex
	names []string
}

func (w *wishes) Subscribe(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names = append(w.names, name)
}

func (w *wishes) Unsubscribe(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names = slices.DeleteFunc(w.names, func(n string) bool { return n == name })
}

func newTable(start time.Time) (*Table, *wishes) {
	w := &wishes{}
	return New(Options{Subscriber: w, Staleness: 5 * time.Minute, Confirm: 30 * time.Second, Idle: time.Minute, Now: start}), w
}

func list(h *header.Function, version uint64, pods ...*skipperpb.Instance) *skipperpb.FunctionInstances {
	return &skipperpb.FunctionInstances{Name: h.Name, Version: version, Instances: pods}
}

func TestFunctionsAreSubscribedToWhileInUse(t *testing.T) {
	start := time.Now()
	table, w := newTable(start)
	one := header.Of(&skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "t", Oneshot: true})
	f := table.Function(function("t"))
	table.Function(one)
	if diff := cmp.Diff([]string{"prod/echo/t"}, w.names); diff != "" {
		t.Errorf("subscriptions (-want +got):\n%s", diff)
	}
	if table.Function(function("t")) != f || table.Size() != 2 {
		t.Error("the same function was added twice")
	}
	table.Sweep(start.Add(2*time.Minute), true)
	if table.Size() != 2 {
		t.Fatal("a function was evicted before a look at its use")
	}
	table.Usage(start.Add(2 * time.Minute))
	table.Sweep(start.Add(4*time.Minute), true)
	if table.Size() != 0 || len(w.names) != 0 || !f.Evicted() {
		t.Errorf("%d functions and %v are left after idleness", table.Size(), w.names)
	}
	if table.Function(function("t")) == f {
		t.Error("the evicted function came back")
	}
}

func TestFunctionWithARequestInProgressStays(t *testing.T) {
	start := time.Now()
	table, _ := newTable(start)
	h := function("t")
	f := table.Function(h)
	table.Push(list(h, 5, pod(1, 5)), start)
	l, ok := f.Acquire(f.View(), f.View().Instances[0])
	if !ok {
		t.Fatal("instance in the view was not granted")
	}
	for m := range 10 {
		now := start.Add(time.Duration(m) * time.Minute)
		table.Usage(now)
		table.Sweep(now, true)
	}
	if table.Size() != 1 {
		t.Fatal("evicted with a request in progress")
	}
	l.Release()
	l.Release()
	if u := table.Usage(start.Add(10 * time.Minute)); u[0].Total != 0 {
		t.Errorf("%d in progress after the end", u[0].Total)
	}
}

func TestRemovedInstanceIsCountedButNotGranted(t *testing.T) {
	table, _ := newTable(time.Now())
	h := function("t")
	f := table.Function(h)
	table.Push(list(h, 5, pod(1, 5)), time.Now())
	v := f.View()
	held, ok := f.Acquire(v, v.Instances[0])
	if !ok {
		t.Fatal("not granted")
	}
	table.Push(list(h, 6, pod(2, 6)), time.Now())
	if _, ok := f.Acquire(v, v.Instances[0]); ok {
		t.Error("an instance was granted after its removal")
	}
	if diff := cmp.Diff(map[string]uint32{"uid-1": 1}, table.Usage(time.Now())[0].InFlight); diff != "" {
		t.Errorf("in flight (-want +got):\n%s", diff)
	}
	held.Release()
	table.Usage(time.Now())
	if _, kept := f.counts["uid-1"]; kept {
		t.Error("the counter of a gone and idle pod is kept")
	}
}

func TestCountsOutliveNewDescriptions(t *testing.T) {
	table, _ := newTable(time.Now())
	h := function("t")
	f := table.Function(h)
	table.Push(list(h, 5, pod(1, 5)), time.Now())
	l, _ := f.Acquire(f.View(), f.View().Instances[0])
	table.Push(list(h, 9, pod(1, 9)), time.Now())
	i := f.View().Instances[0]
	if i.Version != 9 || i.InFlight() != 1 {
		t.Errorf("version %d with %d in progress, want 9 with 1", i.Version, i.InFlight())
	}
	l.Release()
	if i.InFlight() != 0 {
		t.Errorf("%d in progress after the end", i.InFlight())
	}
}

// A request that waited for its instance does not undo the configuration that
// newer ones have named; a oneshot's request brings its own.
func TestOlderRequestsDoNotUndoANewConfiguration(t *testing.T) {
	named := func(metadata string, oneshot bool) *header.Function {
		return header.Of(&skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "t", Metadata: metadata, Oneshot: oneshot})
	}
	for _, oneshot := range []bool{false, true} {
		table, _ := newTable(time.Now())
		old, latest := named("v1", oneshot), named("v2", oneshot)
		for _, h := range []*header.Function{old, latest} {
			table.Function(h)
		}
		f := table.Again(old)
		if got := f.config.Load(); got != latest {
			t.Errorf("oneshot %v: an older request names %q again", oneshot, got.Spec.GetMetadata())
		}
		want := latest
		if oneshot {
			want = old
		}
		lease := table.Hold(old, newInstance(pod(1, 1), &counter{}))
		if got := f.config.Load(); got != want {
			t.Errorf("oneshot %v: a request that waited leaves %q", oneshot, got.Spec.GetMetadata())
		}
		lease.Release()
	}
	table, _ := newTable(time.Now())
	if f := table.Again(named("v1", false)); f.config.Load().Spec.GetMetadata() != "v1" || table.Size() != 1 {
		t.Error("a function that had left is not back")
	}
}

func TestStaleness(t *testing.T) {
	start := time.Now()
	table, _ := newTable(start)
	steps := []struct {
		at     time.Duration
		inStep bool
		want   bool
	}{
		{0, false, false},
		{5 * time.Minute, false, false},
		{5*time.Minute + time.Second, false, true},
		{6 * time.Minute, true, true}, // what changed meanwhile is on its way
		{6*time.Minute + settle, true, false},
		{7 * time.Minute, false, false},
		{11 * time.Minute, false, false},
		{12 * time.Minute, false, true},
	}
	for _, s := range steps {
		table.Sweep(start.Add(s.at), s.inStep)
		if table.Stale() != s.want {
			t.Errorf("after %s: stale is %v, want %v", s.at, table.Stale(), s.want)
		}
	}
}

func TestUnconfirmedAnswersAreDroppedWhileConnected(t *testing.T) {
	start := time.Now()
	table, _ := newTable(start)
	f := table.Function(function("t"))
	f.Learn(pod(1, 5), start)
	steps := []struct {
		at     time.Duration
		inStep bool
		want   int
	}{
		{40 * time.Second, false, 1}, // nobody could have confirmed it
		{41 * time.Second, true, 1},
		{70 * time.Second, true, 1},
		{72 * time.Second, true, 0},
	}
	for _, s := range steps {
		table.Function(function("t"))
		table.Sweep(start.Add(s.at), s.inStep)
		if n := len(f.View().Instances); n != s.want {
			t.Errorf("after %s: %d instances, want %d", s.at, n, s.want)
		}
	}
}

func TestInstancesOfAnotherFunctionArePassedOver(t *testing.T) {
	table, _ := newTable(time.Now())
	h, other := function("t"), function("u")
	f := table.Function(h)
	mine, theirs := pod(1, 5), pod(2, 5)
	mine.Function, theirs.Function = h.Spec, other.Spec
	table.Push(list(h, 6, mine, theirs), time.Now())
	if v := f.View().Instances; len(v) != 1 || v[0].UID != mine.GetUid() {
		t.Errorf("%d instances, want the function's own", len(v))
	}
	if f.Owns(theirs) || !f.Owns(mine) || !f.Owns(pod(3, 5)) {
		t.Error("an instance belongs to the function that it names, or to whoever asked")
	}
}

func TestPushWakesOnlyForAnInstanceThatIsNew(t *testing.T) {
	var woken []string
	table := New(Options{Woken: func(name string) { woken = append(woken, name) }, Now: time.Now()})
	h := function("t")
	table.Push(list(h, 1, pod(1, 1)), time.Now()) // not in the table: nothing happens
	table.Function(h)
	table.Push(list(h, 2), time.Now())
	table.Push(list(h, 3, pod(1, 3)), time.Now())
	table.Push(list(h, 4, pod(1, 4)), time.Now())
	table.Push(list(h, 5, pod(1, 4), pod(2, 5)), time.Now())
	table.Push(list(h, 6, pod(2, 5)), time.Now())
	if diff := cmp.Diff([]string{h.Name, h.Name}, woken); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
}

func TestHoldSurvivesAForgottenCounter(t *testing.T) {
	table, _ := newTable(time.Now())
	h := header.Of(&skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "t", Oneshot: true})
	i := table.Function(h).Learn(pod(1, 1), time.Now())
	table.Usage(time.Now()) // forgets counters of pods that are not known and idle
	l := table.Hold(h, i)
	if diff := cmp.Diff(map[string]uint32{"uid-1": 1}, table.Usage(time.Now())[0].InFlight); diff != "" {
		t.Errorf("in flight (-want +got):\n%s", diff)
	}
	l.Release()
	if n := len(table.Function(h).View().Instances); n != 0 {
		t.Errorf("a oneshot's instance is offered to others: %d", n)
	}
}

// TestNothingIsGrantedAfterARemoval races requests with pushes and evictions: a
// request that asks after a push has returned never gets a pod that it left out.
func TestNothingIsGrantedAfterARemoval(t *testing.T) {
	table, _ := newTable(time.Now())
	h := function("t")
	stop := make(chan struct{})
	var removed atomic.Uint64 // pods up to this one are gone for all
	var requests sync.WaitGroup
	for range 4 {
		requests.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					acquireOne(t, table, h, &removed)
				}
			}
		})
	}
	for n := range uint64(800) {
		table.Function(h)
		table.Push(list(h, n+1, pod(int(n+1), n+1)), time.Now())
		removed.Store(n)
		if n%7 == 0 {
			table.Usage(time.Now())
			table.Sweep(time.Now().Add(time.Hour), true)
		}
	}
	close(stop)
	requests.Wait()
	for _, u := range table.Usage(time.Now()) {
		if u.Total != 0 {
			t.Errorf("%d in progress after the end", u.Total)
		}
	}
}

func acquireOne(t *testing.T, table *Table, h *header.Function, removed *atomic.Uint64) {
	f := table.Function(h)
	v := f.View()
	if len(v.Instances) == 0 {
		return
	}
	before := removed.Load()
	l, ok := f.Acquire(v, v.Instances[0])
	if !ok {
		return
	}
	if l.Instance.Version <= before {
		t.Errorf("%s was granted after the push that removed it", l.Instance.UID)
	}
	if l.Instance.InFlight() < 1 {
		t.Errorf("%s was granted without being counted", l.Instance.UID)
	}
	l.Release()
}

func TestManyFunctions(t *testing.T) {
	start := time.Now()
	table, w := newTable(start)
	for n := range 3000 {
		table.Function(function(fmt.Sprintf("t%d", n)))
	}
	if table.Size() != 3000 || len(w.names) != 3000 || len(table.Usage(start)) != 3000 {
		t.Errorf("%d functions, %d subscriptions", table.Size(), len(w.names))
	}
	table.Sweep(start.Add(time.Hour), true)
	if table.Size() != 0 || len(w.names) != 0 {
		t.Errorf("%d functions, %d subscriptions after idleness", table.Size(), len(w.names))
	}
}
