package supervise

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
)

// replacements is what a world does to replace instances.
type replacements struct {
	replaceTakes          time.Duration
	replaceFails          error
	replacePanics         bool
	replacingNow, busiest int
	replaced              int
	rewritten             []string
}

var errNoSpare = errors.New("no pod of an active ReplicaSet")

// Replace takes a spare pod as the real acquirer does.
func (w *world) Replace(ctx context.Context, f *skipperpb.Function) (pool.Pod, error) {
	w.mu.Lock()
	w.replacingNow++
	w.busiest = max(w.busiest, w.replacingNow)
	takes, fails, panics := w.replaceTakes, w.replaceFails, w.replacePanics
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.replacingNow--
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
	return w.claimSpare(f)
}

func (w *world) claimSpare(f *skipperpb.Function) (pool.Pod, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sets, all := w.view.ReplicaSets("prod", "echo"), w.view.Unassigned("prod", "echo")
	slices.SortFunc(all, func(a, b *pool.Pod) int { return strings.Compare(a.UID, b.UID) })
	for _, p := range all {
		if spares([]*pool.Pod{p}, sets) == 0 {
			continue
		}
		w.view.Remove(p.Namespace, p.UID, 0)
		made := ready(f, p.UID, time.Now())
		made.ReplicaSet = p.ReplicaSet
		w.view.Apply(made)
		w.replaced++
		return made, nil
	}
	return pool.Pod{}, errNoSpare
}

// Rewrite shows the annotation as the API server would.
func (w *world) Rewrite(p pool.Pod, f *skipperpb.Function) error {
	w.mu.Lock()
	w.rewritten = append(w.rewritten, p.UID)
	w.mu.Unlock()
	p.Function = f
	w.view.Apply(p)
	return nil
}

func (w *world) event(e *skipperpb.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

func (w *world) count(kind skipperpb.EventType, severity skipperpb.EventSeverity) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, e := range w.events {
		if e.GetType() == kind && e.GetSeverity() == severity {
			n++
		}
	}
	return n
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) underReplacement() int {
	w.Supervisors.mu.Lock()
	defer w.Supervisors.mu.Unlock()
	return w.replacing
}

// allow bounds the replacements from now on.
func (w *world) allow(n int) {
	w.Supervisors.mu.Lock()
	defer w.Supervisors.mu.Unlock()
	w.opts.Replacements = n
}

// rollout makes the old ReplicaSet keep none, and the new one have n spares.
func (w *world) rollout(n int) {
	w.view.ApplyReplicaSet(pool.ReplicaSet{Namespace: "prod", Name: "old", Deployment: "echo", Revision: 1})
	w.view.ApplyReplicaSet(pool.ReplicaSet{Namespace: "prod", Name: "new", Deployment: "echo", Revision: 2, Replicas: 5})
	w.addSpares("new", n)
}

func (w *world) addSpares(set string, n int) {
	for i := range n {
		w.addSpare(set, fmt.Sprint(set, "-", i))
	}
}

func (w *world) addSpare(set, name string) {
	w.view.Apply(pool.Pod{
		Namespace: "prod", Name: name, UID: name, IP: "10.244.1.7", Port: 8080, Protocol: xds.HTTP1,
		Deployment: "echo", Ready: true, Phase: corev1.PodRunning, ReplicaSet: set, OwnedByReplicaSet: true,
	})
}

func ofSet(p pool.Pod, set string) pool.Pod {
	p.ReplicaSet = set
	return p
}

func TestRolloutReplacesAllAndNeverTooManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := setup(t)
		w.replaceTakes = 10 * time.Second
		var fs []*skipperpb.Function
		for i := range 25 {
			fs = append(fs, function(fmt.Sprint("t", i), 0, 1, 0))
			w.view.Apply(ofSet(ready(fs[i], fmt.Sprint("old-", i), time.Now()), "old"))
		}
		w.rollout(100)
		for second := range 60 {
			for i := 0; second%5 == 0 && i < len(fs); i++ {
				w.beat(fs[i], 1, nil)
			}
			advance(time.Second)
			w.expectWithin(fs, 2)
		}
		if w.replaced != 25 || len(w.drained) != 25 || w.busiest != 10 {
			t.Errorf("%d replacements and %d drains, %d at a time, want 25, 25 and 10", w.replaced, len(w.drained), w.busiest)
		}
		if slices.ContainsFunc(w.drained, func(uid string) bool { return !strings.HasPrefix(uid, "old-") }) {
			t.Errorf("drained %v, want the old ones", w.drained)
		}
		if n := testutil.ToFloat64(w.metrics.replacements.WithLabelValues("replaced")); n != 25 || w.underReplacement() != 0 || len(w.waiting) != 0 {
			t.Errorf("%v counted, %d places taken, %d waiting", n, w.underReplacement(), len(w.waiting))
		}
	})
}

// expectWithin is that no function has none, or more than most.
func (w *world) expectWithin(fs []*skipperpb.Function, most int) {
	w.t.Helper()
	for _, f := range fs {
		if n := len(active(w.view.Instances(fn.KeyOf(f)))); n < 1 || n > most {
			w.t.Errorf("%s has %d instances, want 1 to %d", f.GetTenant(), n, most)
		}
	}
}

// TestWaitingFunctionsAreServedWithoutWaitingForTheirInterval has more stale
// functions than places.
func TestWaitingFunctionsAreServedWithoutWaitingForTheirInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := setup(t)
		w.replaceTakes = time.Second
		for i := range 100 {
			w.view.Apply(ofSet(ready(function(fmt.Sprint("t", i), 0, 1, 0), fmt.Sprint("old-", i), time.Now()), "old"))
		}
		w.rollout(200)
		advance(interval + 12*time.Second) // all have been looked at once, and then 10 at a time
		if w.replaced != 100 || w.busiest != 10 {
			t.Errorf("%d replaced, %d at a time, want 100 and 10", w.replaced, w.busiest)
		}
	})
}

func TestNoReplacementWithoutAPodOfAnActiveReplicaSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 3, 0)
		w.view.Apply(ofSet(ready(f, "a", time.Now()), "old"))
		w.rollout(0)
		w.addSpares("old", 5)
		w.beatFor(time.Minute, f, 1, nil)
		w.expect(f, "a")
		if w.busiest != 0 {
			t.Error("a place was taken for nothing")
		}
		w.addSpares("new", 1)
		w.beatFor(2*interval, f, 1, nil)
		w.expect(f, "new-0")
	})
}

func TestReplacementComesFirstThenTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 1, 0)
		w.replaceTakes = 10 * time.Second
		w.view.Apply(ofSet(ready(f, "a", time.Now()), "old"))
		w.rollout(3)
		w.beat(f, 1, nil)
		for w.underReplacement() == 0 {
			advance(time.Second)
		}
		advance(8 * time.Second)
		w.expect(f, "a")
		advance(2 * time.Second)
		if n := w.underReplacement(); n != 0 || w.replaced != 1 || len(w.drained) != 1 {
			t.Errorf("%d places taken, %d replaced, %v drained", n, w.replaced, w.drained)
		}
	})
}

func TestFailedReplacementLeavesTheInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 1, 0)
		w.replaceFails = errors.New("pods refuse")
		w.view.Apply(ofSet(ready(f, "a", time.Now()), "old"))
		w.rollout(3)
		w.beatFor(5*time.Minute, f, 1, nil)
		w.expect(f, "a")
		if w.underReplacement() != 0 {
			t.Errorf("%d places taken", w.underReplacement())
		}
		w.set(func() { w.replaceFails, w.replacePanics = nil, true })
		w.beatFor(2*interval, f, 1, nil)
		w.expect(f, "a")
		w.set(func() { w.replacePanics = false })
		w.beatFor(2*interval, f, 1, nil)
		w.expect(f, "new-0")
		if w.underReplacement() != 0 || testutil.ToFloat64(w.metrics.panics) == 0 {
			t.Errorf("%d places taken", w.underReplacement())
		}
	})
}

func TestFailedDrainIsNotReplacedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 5, 0)
		w.view.Apply(ofSet(ready(f, "a", time.Now()), "old"))
		w.rollout(10)
		w.set(func() { w.fails = errors.New("no API server") })
		w.beatFor(3*time.Minute, f, 1, nil)
		w.expect(f, "a", "new-0")
		w.set(func() { w.fails = nil })
		w.beatFor(2*interval, f, 1, nil)
		w.expect(f, "new-0")
		if w.replaced != 1 || w.underReplacement() != 0 {
			t.Errorf("%d replacements, %d places taken", w.replaced, w.underReplacement())
		}
	})
}

func TestInstanceThatVanishesDuringItsReplacementGivesThePlaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 5, 0)
		w.view.Apply(ofSet(ready(f, "a", time.Now()), "old"))
		w.rollout(1)
		w.set(func() { w.fails = errors.New("no API server") })
		w.beatFor(2*interval, f, 1, nil)
		w.view.Remove("prod", "a", 0)
		w.beatFor(2*interval, f, 1, nil)
		w.expect(f, "new-0")
		if w.underReplacement() != 0 {
			t.Errorf("%d places taken", w.underReplacement())
		}
	})
}

func TestNoReplacementWhileScalingDownOrForOneshotsOrWhenSwitchedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f, once := setup(t), function("t", 0, 5, 0), function("u", 0, 5, 0)
		once.Oneshot = true
		w.allow(0)
		w.view.Apply(ofSet(ready(f, "a", time.Now()), "old"))
		w.view.Apply(ofSet(ready(once, "b", time.Now()), "old"))
		w.rollout(5)
		w.beatFor(time.Minute, f, 1, nil)
		w.expect(f, "a")
		w.set(func() { w.fails = errors.New("no API server") }) // so that the scale-down goes on
		advance(timeout + 2*interval)
		w.allow(10)
		advance(4 * interval)
		w.expect(f, "a")
		if w.replaced != 0 {
			t.Errorf("%d replacements", w.replaced)
		}
	})
}

func TestRolloutsDoNotKeepUnusedFunctionsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 1, 0)
		advance(2 * timeout)
		w.view.Apply(ofSet(ready(f, "a", time.Now()), "old")) // nobody has ever spoken of it
		w.rollout(5)
		advance(timeout - 2*interval)
		w.expect(f, "a")
		advance(4 * interval)
		w.expect(f)
	})
}

func TestAdoptedInstancesAreReplacedOnlyByTheResponsibleReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 5, 0)
		w.foreign[fn.KeyOf(f)] = true
		w.view.Apply(ofSet(ready(f, "a", time.Now()), "old"))
		w.rollout(5)
		w.beatFor(time.Minute, f, 1, nil)
		w.expect(f, "a")
	})
}

func changed(f *skipperpb.Function, change func(*skipperpb.Function)) *skipperpb.Function {
	c := proto.CloneOf(f)
	change(c)
	return c
}

func TestNewMetadataTakesOverOnceTheOldIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 2, 0)
		g := changed(f, func(f *skipperpb.Function) { f.Metadata = "v2" })
		w.view.ApplyReplicaSet(pool.ReplicaSet{Namespace: "prod", Name: "new", Deployment: "echo", Replicas: 5})
		w.addSpares("new", 4)
		w.view.Apply(ofSet(ready(f, "a", time.Now()), "new"))
		w.beatFor(time.Minute, f, 1, nil)
		w.beatFor(10*time.Second, g, 1, nil)
		w.expect(f, "a")
		w.beatFor(20*time.Second, g, 1, nil)
		w.expect(f, "new-0")
		if p, _ := w.view.Pod("new-0"); p.Function.GetMetadata() != "v2" {
			t.Errorf("replaced by %v", p.Function)
		}
	})
}

func TestCallersThatAlternateChangeNothingAndAreNamedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 2, 0)
		g := changed(f, func(f *skipperpb.Function) { f.Metadata = "v2" })
		w.view.ApplyReplicaSet(pool.ReplicaSet{Namespace: "prod", Name: "new", Deployment: "echo", Replicas: 5})
		w.addSpares("new", 4)
		w.view.Apply(ofSet(ready(f, "a", time.Now()), "new"))
		for range 60 {
			w.beatFor(5*time.Second, f, 1, nil)
			w.beatFor(5*time.Second, g, 1, nil)
		}
		w.expect(f, "a")
		if n := w.count(skipperpb.EventType_EVENT_TYPE_STALE_REPLACEMENT, skipperpb.EventSeverity_EVENT_SEVERITY_WARN); n != 1 {
			t.Errorf("%d warnings, want 1", n)
		}
	})
}

func TestNewScaleIsWrittenAndThePodGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 1, 2, 0)
		g := changed(f, func(f *skipperpb.Function) { f.Scale.MinInstances, f.Scale.MaxInstances = 2, 9 })
		w.view.Apply(ready(f, "a", time.Now()))
		w.beatFor(time.Minute, f, 1, nil)
		w.beatFor(time.Minute, g, 1, nil)
		w.expect(f, "a", "new-01")
		if p, _ := w.view.Pod("a"); p.Function.GetScale().GetMaxInstances() != 9 || !slices.Equal(w.rewritten, []string{"a"}) || w.replaced != 0 {
			t.Errorf("annotation %v, written for %v, %d replaced", p.Function, w.rewritten, w.replaced)
		}
	})
}

func TestStopDuringAReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := newWorld(t), function("t", 0, 2, 0)
		w.replaceTakes = 20 * time.Second
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		synctest.Wait()
		w.view.Apply(ofSet(ready(f, "a", time.Now()), "old"))
		w.rollout(1)
		w.beat(f, 1, nil)
		advance(2 * time.Second)
		if w.underReplacement() != 1 {
			t.Fatalf("%d replacements under way, want 1", w.underReplacement())
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
		w.expect(f, "a")
	})
}
