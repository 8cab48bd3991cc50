package supervise

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"

	"skipper/controller/hearing"
	"skipper/controller/heartbeat"
	"skipper/controller/pool"
	"skipper/controller/scale"
	"skipper/controller/usage"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	interval  = 15 * time.Second
	timeout   = 90 * time.Second
	assigning = 30 * time.Second
)

// world is a cluster in miniature: a real view, and an acquirer and a retirer
// that do to it what the real ones would.
type world struct {
	t     *testing.T
	logs  *observer.ObservedLogs
	view  *pool.View
	beats *heartbeat.Store
	*Supervisors

	mu         sync.Mutex
	made       int // pods ever made
	acquiring  int
	peak       int           // most acquisitions at a time
	joins      int           // GetOrAcquire calls
	takes      time.Duration // one acquisition
	fails      error
	panics     bool
	drained    []string
	deleted    []string
	refuses    bool // Reassign
	hangs      bool // Reassign
	reassigned []string
	takenUp    map[fn.Key]int
	asked      map[string]bool // by the acquirer
	dry        bool            // Acquire finds no pod
	foreign    map[fn.Key]bool // functions of other replicas
	replacements
	usage  map[string]usage.Usage // by pod; nil: there is no metrics API
	events []*skipperpb.Event
}

func newWorld(t *testing.T) *world {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	w := &world{t: t, logs: logs, view: pool.NewView(), beats: heartbeat.NewStore(timeout, heartbeat.Limits{}), foreign: map[fn.Key]bool{}, takenUp: map[fn.Key]int{}}
	w.Supervisors = New(Options{
		Policy:   scale.Policy{HeartbeatTimeout: timeout, Stabilization: timeout, StartedAt: time.Now()},
		Interval: interval, AssignTimeout: assigning, Grace: 5 * time.Second, Replacements: 10,
	}, Deps{
		Pods: w.view, Heartbeats: w.beats, Acquirer: w, Retirer: w, Responsible: w.responsible, Usage: w, Event: w.event,
		Logger: zap.New(core), Registerer: prometheus.NewRegistry(),
	})
	return w
}

// setup runs the supervisors from now on, which is when the controller started.
func setup(t *testing.T, before ...pool.Pod) *world {
	t.Helper()
	return setupHearing(t, nil, before...)
}

// setupHearing is setup of a controller that hears since when hears says.
func setupHearing(t *testing.T, hears func(time.Time) time.Time, before ...pool.Pod) *world {
	t.Helper()
	w := newWorld(t)
	w.Hears = hears
	for _, p := range before {
		w.view.Apply(p)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	cancel := w.view.Listen(w.Observe)
	t.Cleanup(func() {
		cancel()
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	synctest.Wait()
	return w
}

func (w *world) responsible(k fn.Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.foreign[k]
}

func (w *world) GetOrAcquire(ctx context.Context, f *skipperpb.Function, _ []string) (pool.Pod, error) {
	w.mu.Lock()
	w.joins++
	w.mu.Unlock()
	return w.Acquire(ctx, f)
}

func (w *world) Acquire(ctx context.Context, f *skipperpb.Function) (pool.Pod, error) {
	w.mu.Lock()
	w.acquiring++
	w.peak = max(w.peak, w.acquiring)
	takes, fails, panics := w.takes, w.fails, w.panics
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.acquiring--
		w.mu.Unlock()
	}()
	if panics {
		panic("acquirer")
	}
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return pool.Pod{}, ctx.Err()
	}
	if fails != nil {
		return pool.Pod{}, fails
	}
	w.mu.Lock()
	if w.dry {
		w.mu.Unlock()
		return pool.Pod{}, errNoSpare
	}
	w.made++
	p := ready(f, fmt.Sprintf("new-%02d", w.made), time.Now())
	w.mu.Unlock()
	w.view.Apply(p)
	return p, nil
}

func (w *world) Drain(_ context.Context, p pool.Pod, _ string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fails != nil {
		return w.fails
	}
	w.drained = append(w.drained, p.UID)
	w.view.ExpectDraining(p.UID, time.Now())
	return nil
}

func (w *world) DrainSoon(p pool.Pod, why string) { _ = w.Drain(context.Background(), p, why) }

func (w *world) DeleteSoon(p pool.Pod, _ string) {
	w.mu.Lock()
	w.deleted = append(w.deleted, p.UID)
	w.mu.Unlock()
	w.view.Remove(p.Namespace, p.UID, 0)
}

// beat sends what a router would, and tells the supervisors as the server does.
func (w *world) beat(f *skipperpb.Function, n uint32, on map[string]uint32) {
	w.beats.Record(&skipperpb.HeartbeatRequest{RouterIp: "10.9.0.1", Heartbeats: []*skipperpb.Heartbeat{{
		Function: f, Timestamp: timestamppb.Now(), InFlightRequests: n, InFlightByInstance: on,
	}}}, time.Now())
	w.Heard(f)
}

// beatFor sends a heartbeat each 5 s for the given time.
func (w *world) beatFor(d time.Duration, f *skipperpb.Function, n uint32, on map[string]uint32) {
	for range d / (5 * time.Second) {
		w.beat(f, n, on)
		advance(5 * time.Second)
	}
}

// advance lets virtual time pass.
func advance(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
	synctest.Wait()
}

func (w *world) expect(f *skipperpb.Function, want ...string) {
	w.t.Helper()
	var got []string
	for _, p := range active(w.view.Instances(fn.KeyOf(f))) {
		got = append(got, p.UID)
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("instances %v, want %v", got, want)
	}
}

func (w *world) expectSupervised(want int) {
	w.t.Helper()
	if got := len(w.Functions()); got != want {
		w.t.Errorf("%d supervisors, want %d", got, want)
	}
}

func function(tenant string, lo, hi, target uint32) *skipperpb.Function {
	return &skipperpb.Function{
		Namespace: "prod", Deployment: "echo", Tenant: tenant,
		Scale: &skipperpb.Scale{MinInstances: lo, MaxInstances: hi, TargetInFlightRequests: target},
	}
}

func assigned(f *skipperpb.Function, uid string, at time.Time) pool.Pod {
	return pool.Pod{
		Namespace: f.GetNamespace(), Name: uid, UID: uid, IP: "10.244.0.7", Port: 8080, Protocol: xds.HTTP1,
		Deployment: f.GetDeployment(), Ready: true, Phase: corev1.PodRunning,
		Marked: true, Tenant: f.GetTenant(), Function: f, Key: fn.KeyOf(f), AssignedAt: at,
	}
}

func ready(f *skipperpb.Function, uid string, at time.Time) pool.Pod {
	p := assigned(f, uid, at)
	p.ReadyAt = at
	return p
}

func TestFunctionLivesAndEndsWithItsHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 5, 0)
		w.beatFor(5*time.Minute, f, 1, nil)
		w.expect(f, "new-01")
		advance(timeout + 2*interval)
		w.expect(f)
		w.expectSupervised(1) // a draining instance is still looked after
		w.view.Remove("prod", "new-01", 0)
		advance(interval)
		w.expectSupervised(0)
		w.beat(f, 1, nil)
		advance(time.Second)
		w.expect(f, "new-02")
	})
}

func TestFollowsRequestsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 5, 50)
		w.beatFor(2*interval, f, 5, nil)
		w.expect(f, "new-01")
		w.beatFor(2*interval, f, 120, nil)
		w.expect(f, "new-01", "new-02", "new-03")
		w.beatFor(timeout-interval, f, 60, nil) // the window still holds 3
		w.expect(f, "new-01", "new-02", "new-03")
		w.beatFor(3*interval, f, 60, nil)
		w.expect(f, "new-02", "new-03") // the oldest went
		w.beatFor(2*timeout, f, 1000, nil)
		if n := len(active(w.view.Instances(fn.KeyOf(f)))); n != 5 {
			t.Errorf("%d instances, want the maximum of 5", n)
		}
	})
}

func TestFirstInstanceJoinsWaitingCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 3, 5, 0)
		w.beat(f, 0, nil)
		advance(time.Second)
		w.expect(f, "new-01", "new-02", "new-03")
		if w.joins != 1 {
			t.Errorf("%d joined, want only the first", w.joins)
		}
	})
}

func TestLosingAllInstancesForgetsHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 5, 0)
		w.beat(f, 1, nil)
		advance(time.Second)
		w.view.Remove("prod", "new-01", 0)
		advance(2 * interval)
		w.expect(f)
		w.expectSupervised(0)
		w.beat(f, 1, nil) // somebody still wants it
		advance(time.Second)
		w.expect(f, "new-02")
	})
}

func TestDeadInstanceIsReplacedIfWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 2, 5, 0)
		w.beat(f, 1, nil)
		advance(time.Second)
		w.expect(f, "new-01", "new-02")
		dead := ready(f, "new-01", time.Now())
		dead.Phase = corev1.PodFailed
		w.view.Apply(dead)
		advance(time.Second) // by the event, not by the interval
		w.expect(f, "new-02", "new-03")
	})
}

func TestStuckInstanceIsDeletedAndReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 5, 0)
		w.view.Apply(assigned(f, "slow", time.Now()))
		w.beatFor(2*assigning-interval, f, 0, nil)
		w.expect(f, "slow")
		w.beatFor(3*interval, f, 0, nil)
		w.expect(f, "new-01")
	})
}

func TestStuckInstanceThatServesIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 5, 0)
		w.view.Apply(assigned(f, "serves", time.Now()))
		w.beatFor(4*assigning, f, 1, map[string]uint32{"serves": 1})
		w.expect(f, "serves")
		w.beatFor(2*interval, f, 0, nil)
		w.expect(f, "new-01")
	})
}

func TestOthersFunctionsAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := function("t", 0, 5, 0)
		w := setup(t)
		w.foreign[fn.KeyOf(f)] = true
		w.view.Apply(ready(f, "theirs", time.Now()))
		w.beat(f, 1, nil)
		advance(3 * timeout)
		w.expect(f, "theirs")
		if w.made+len(w.drained)+len(w.deleted) != 0 {
			t.Errorf("made %d, drained %v, deleted %v, want nothing done", w.made, w.drained, w.deleted)
		}
	})
}

func TestAdoptsWhatItFindsAndProtectsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g := function("t", 0, 5, 0), function("u", 0, 5, 0)
		old := time.Now().Add(-time.Hour)
		w := setup(t, ready(f, "f-1", old), ready(f, "f-2", old), ready(g, "g-1", old), assigned(g, "g-2", old))
		advance(timeout - interval)
		w.expect(f, "f-1", "f-2")                      // nobody has spoken yet
		if !slices.Equal(w.drained, []string{"g-2"}) { // stuck
			t.Errorf("drained %v within the protection period", w.drained)
		}
		w.beatFor(4*interval, f, 1, nil)
		w.expect(g) // nobody ever spoke of it
		w.expect(f, "f-2")
	})
}

// A controller whose start takes longer than the protection hears nothing
// meanwhile; what it has found is in use all the same.
func TestNothingEndsBeforeItIsHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, once := function("t", 0, 5, 0), function("u", 0, 5, 0)
		once.Oneshot = true
		old := time.Now().Add(-time.Hour)
		h := hearing.New(timeout / 2)
		w := setupHearing(t, h.Since, ready(f, "f-1", old), ready(f, "f-2", old), ready(once, "once", old), assigned(f, "f-3", old))
		advance(5 * timeout) // an API server that is slow to list
		w.expect(f, "f-1", "f-2", "f-3")
		w.expect(once, "once")
		h.Begin(time.Now())
		advance(timeout - interval)
		w.expect(f, "f-1", "f-2") // the third is stuck
		w.expect(once, "once")
		w.beatFor(4*interval, f, 1, nil)
		w.expect(f, "f-2")
		w.expect(once)
	})
}

func TestOneshotOrphansAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := function("t", 0, 5, 0)
		f.Oneshot = true
		w := setup(t, ready(f, "found", time.Now().Add(-time.Hour)))
		w.view.Apply(ready(f, "orphan", time.Now()))
		w.view.Apply(ready(f, "busy", time.Now()))
		w.beatFor(timeout-interval, f, 1, map[string]uint32{"busy": 1})
		w.expect(f, "found", "busy", "orphan")
		w.beatFor(3*interval, f, 1, map[string]uint32{"busy": 1})
		w.expect(f, "busy")
		w.beatFor(timeout-interval, f, 0, nil)
		w.expect(f, "busy") // it may still be served
		w.beatFor(3*interval, f, 0, nil)
		w.expect(f)
		if w.made != 0 {
			t.Errorf("%d instances assigned for a oneshot, want none", w.made)
		}
	})
}

func TestOneshotThatNeverAcceptedIsDeletedAsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := function("t", 0, 5, 0)
		f.Oneshot = true
		w := setup(t)
		w.view.Apply(assigned(f, "stuck", time.Now()))
		w.view.Apply(assigned(f, "busy", time.Now())) // only its annotation is missing
		w.beatFor(2*assigning+2*interval, f, 1, map[string]uint32{"busy": 1})
		w.expect(f, "busy")
		if n := w.count(skipperpb.EventType_EVENT_TYPE_STUCK_INSTANCE_CLEANUP, skipperpb.EventSeverity_EVENT_SEVERITY_WARN); n != 1 {
			t.Errorf("%d events of stuck instances, want 1", n)
		}
	})
}

func TestOneshotOfARouterWithoutDetailsIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := function("t", 0, 5, 0)
		f.Oneshot = true
		w := setup(t)
		w.view.Apply(ready(f, "busy", time.Now()))
		w.beatFor(10*time.Minute, f, 1, nil)
		w.expect(f, "busy")
	})
}

func TestScaleOnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 2, 4, 0)
		w.takes = time.Second
		for _, step := range []struct{ ask, want int }{{3, 3}, {9, 4}, {1, 2}, {0, 0}} {
			got, err := w.Scale(t.Context(), f, step.ask, "test")
			if len(got) != step.want || err != nil {
				t.Errorf("Scale(%d) = %d instances, %v, want %d", step.ask, len(got), err, step.want)
			}
		}
		if got, _ := w.Scale(t.Context(), f, 3, "test"); len(got) != 3 {
			t.Fatalf("%d instances, want 3", len(got))
		}
		advance(timeout - 2*interval)
		if n := len(active(w.view.Instances(fn.KeyOf(f)))); n != 3 {
			t.Errorf("%d instances after the wish, want 3 for the window", n)
		}
		advance(3 * timeout)
		w.expect(f)
	})
}

func TestScaleDoesNotDoubleWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 2, 4, 0)
		w.takes = 10 * time.Second
		w.beat(f, 1, nil)
		advance(time.Second)
		got, err := w.Scale(t.Context(), f, 3, "test")
		if len(got) != 3 || err != nil || w.made != 3 {
			t.Errorf("Scale = %d instances, %v, %d made, want 3 and 3", len(got), err, w.made)
		}
	})
}

func TestScaleReportsWhyItCannot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 4, 0)
		w.fails = errors.New("pool is empty")
		if _, err := w.Scale(t.Context(), f, 2, "test"); !errors.Is(err, w.fails) {
			t.Errorf("Scale = %v, want %v", err, w.fails)
		}
	})
}

func TestFailedGrowthWaitsForTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 4, 0)
		w.fails = errors.New("pool is empty")
		for range 10 {
			w.beat(f, 1, nil)
			advance(time.Second)
		}
		if w.joins != 1 {
			t.Errorf("%d attempts within 10 s, want one for each interval", w.joins)
		}
		w.mu.Lock()
		w.fails = nil
		w.mu.Unlock()
		advance(2 * interval)
		w.expect(f, "new-01")
	})
}

func TestFailedDrainIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 4, 0)
		w.beat(f, 1, nil)
		advance(time.Second)
		w.mu.Lock()
		w.fails = errors.New("no API server")
		w.mu.Unlock()
		if _, err := w.Scale(t.Context(), f, 0, "test"); !errors.Is(err, w.fails) {
			t.Errorf("Scale = %v, want %v", err, w.fails)
		}
		advance(timeout + 2*interval)
		w.expect(f, "new-01")
		w.mu.Lock()
		w.fails = nil
		w.mu.Unlock()
		advance(2 * interval)
		w.expect(f)
	})
}

func TestPanicTouchesNoOtherFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f, g := setup(t), function("t", 0, 4, 0), function("u", 0, 4, 0)
		w.panics = true
		w.beat(f, 1, nil)
		advance(time.Second)
		w.mu.Lock()
		w.panics = false
		w.mu.Unlock()
		w.beat(g, 1, nil)
		advance(time.Second)
		if n := len(active(w.view.Instances(fn.KeyOf(g)))); n != 1 {
			t.Errorf("%d instances of the other function, want 1", n)
		}
		advance(2 * interval) // and this one is tried again
		if n := len(active(w.view.Instances(fn.KeyOf(f)))); n != 1 {
			t.Errorf("%d instances after the panic, want 1", n)
		}
	})
}

func TestGrowthIsBoundedAndParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 40, 40, 0)
		w.addSpares("new", 60)
		w.takes = time.Second
		w.beat(f, 1, nil)
		advance(10 * time.Second)
		if n := len(active(w.view.Instances(fn.KeyOf(f)))); n != 40 || w.peak != 8 {
			t.Errorf("%d instances with at most %d at a time, want 40 with 8", n, w.peak)
		}
	})
}

func TestFunctionsOfAnEmptyPoolWaitForOnePodEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := setup(t)
		w.takes = 20 * time.Second
		for i := range 10 {
			w.beat(function(fmt.Sprint("t", i), 40, 40, 0), 1, nil)
		}
		advance(10 * time.Second)
		if w.peak != 10 {
			t.Errorf("%d assignments wait for pods, want one for each function", w.peak)
		}
	})
}

func TestTenThousandIdleOnesCostNoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		var found []pool.Pod
		for i := range 10_000 {
			f := function(fmt.Sprint("t", i), 0, 4, 0)
			found = append(found, ready(f, fmt.Sprint("p", i), time.Now()))
		}
		w := setup(t, found...)
		advance(interval + time.Second)
		w.expectSupervised(10_000)
		if n := runtime.NumGoroutine() - before; n > 20 {
			t.Errorf("%d goroutines more than before, want a few workers", n)
		}
		if n := testutil.ToFloat64(w.metrics.converges); n < 10_000 || n > 11_000 {
			t.Errorf("%v converges in the first interval, want one for each function", n)
		}
	})
}

func TestStopWaitsForAssignmentsWithinTheGrace(t *testing.T) {
	for _, tt := range []struct {
		takes, want time.Duration
		made        int
	}{{time.Second, time.Second, 1}, {20 * time.Second, 5 * time.Second, 0}} {
		synctest.Test(t, func(t *testing.T) {
			w, f := newWorld(t), function("t", 0, 4, 0)
			w.takes = tt.takes
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- w.Run(ctx) }()
			synctest.Wait()
			w.beat(f, 1, nil)
			synctest.Wait()
			began := time.Now()
			stop()
			if err := <-done; err != nil || time.Since(began) != tt.want || w.made != tt.made {
				t.Errorf("Run = %v after %s with %d made, want %s and %d", err, time.Since(began), w.made, tt.want, tt.made)
			}
			if _, err := w.Scale(t.Context(), f, 3, "test"); !errors.Is(err, errStopping) {
				t.Errorf("Scale after the stop = %v, want %v", err, errStopping)
			}
		})
	}
}
