package supervise

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"skipper/controller/acquire"
	"skipper/controller/usage"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

func (w *world) Metered(string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.usage != nil
}

func (w *world) Of(_, pod string, _ time.Time) (usage.Usage, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u, ok := w.usage[pod]
	return u, ok
}

// burn has the function use so much in all, shared by its instances.
func (w *world) burn(f *skipperpb.Function, milli, mib int) {
	instances := active(w.view.Instances(fn.KeyOf(f)))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.usage = map[string]usage.Usage{}
	for _, p := range instances {
		w.usage[p.Name] = usage.Usage{CPUMilli: uint32(milli / len(instances)), MemoryMiB: uint32(mib / len(instances))}
	}
}

// burnFor is a load that lasts, with metrics and heartbeats each 5 s.
func (w *world) burnFor(d time.Duration, f *skipperpb.Function, milli, mib int) {
	for range d / (5 * time.Second) {
		w.burn(f, milli, mib)
		w.beatFor(5*time.Second, f, 1, nil)
	}
}

func (w *world) expectCount(f *skipperpb.Function, want int) {
	w.t.Helper()
	if n := len(active(w.view.Instances(fn.KeyOf(f)))); n != want {
		w.t.Errorf("%d instances, want %d", n, want)
	}
}

func TestFollowsCPUThenShrinksAfterTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 9, 0)
		f.Scale.TargetCpuUsageMilli = 500
		w.beatFor(2*time.Minute, f, 1, nil)
		w.expectCount(f, 1)
		w.burnFor(time.Minute, f, 2000, 0)
		w.expectCount(f, 4)
		w.burnFor(60*time.Second, f, 300, 0)
		w.expectCount(f, 4) // the window holds
		w.burnFor(2*time.Minute, f, 300, 0)
		w.expectCount(f, 1)
	})
}

func TestFollowsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 9, 0)
		f.Scale.TargetMemoryUsageMib = 100
		w.beatFor(30*time.Second, f, 1, nil)
		w.burnFor(time.Minute, f, 0, 350)
		w.expectCount(f, 4)
	})
}

func TestLostMetricsShrinkNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 9, 0)
		f.Scale.TargetCpuUsageMilli = 500
		w.beatFor(2*time.Minute, f, 1, nil)
		w.burnFor(2*time.Minute, f, 2000, 0)
		w.set(func() { w.usage = map[string]usage.Usage{} })
		w.beatFor(10*time.Minute, f, 1, nil)
		w.expectCount(f, 4)
		w.set(func() { w.usage = nil }) // never had any, as after a restart without metrics API
		w.beatFor(5*time.Minute, f, 1, nil)
		w.expectCount(f, 1)
	})
}

func TestHopelessFunctionIsNotLoggedInEachInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 9, 0)
		tries := 0
		for range 120 {
			tries++
			w.set(func() {
				w.fails = &acquire.Error{Cause: acquire.AssignRejected, Message: fmt.Sprint("next try in ", tries), Err: errors.New("500")}
			})
			w.beatFor(30*time.Second, f, 1, nil)
		}
		if n := w.logs.FilterMessage("scale up").Len(); n < 2 || n > 8 {
			t.Errorf("%d lines of failure in an hour, want a few", n)
		}
		if n := w.logs.FilterMessage("scale").Len(); n < 1 || n > 8 {
			t.Errorf("%d lines of decision in an hour, want a few", n)
		}
		before := w.logs.FilterMessage("scale up").Len()
		w.set(func() { w.fails = errors.New("something else") })
		w.beatFor(time.Minute, f, 1, nil)
		if n := w.logs.FilterMessage("scale up").Len(); n != before+1 {
			t.Errorf("%d lines for another cause, want 1", n-before)
		}
	})
}

// Nor while each assignment is under way for longer than an interval.
func TestSlowFailuresAreNotLoggedInEachInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 9, 0)
		w.takes, w.fails = 2*interval, &acquire.Error{Cause: acquire.PoolEmpty, Message: "pool is empty", Err: errors.New("none")}
		w.beatFor(time.Hour, f, 1, nil)
		if n := w.logs.FilterMessage("scale").Len(); n < 1 || n > 8 {
			t.Errorf("%d lines of decision in an hour, want a few", n)
		}
	})
}

func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/scaling.md")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	m := newMetrics(registry, func() float64 { return 0 })
	for _, v := range []*prometheus.CounterVec{m.decisions, m.growth, m.reassigns, m.replacements} {
		v.WithLabelValues("x") // a vector without values is not gathered
	}
	usage.New(usage.Config{Registerer: registry, Log: zap.NewNop()})
	families, err := registry.Gather()
	if err != nil || len(families) < 12 {
		t.Fatalf("%d metrics gathered: %v", len(families), err)
	}
	for _, f := range families {
		if !strings.Contains(string(text), "`"+f.GetName()) {
			t.Errorf("%s is not in docs/scaling.md", f.GetName())
		}
	}
}
