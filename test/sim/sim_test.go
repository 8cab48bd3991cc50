package sim

import (
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"skipper/test/race"
)

var (
	schedules = flag.Int("sim.schedules", 0, "random schedules to live through; 0: 500, and 20 under the race detector")
	oneSeed   = flag.Uint64("sim.seed", 0, "live through the schedule with this seed alone; 0: all")
	repeat    = flag.Int("sim.repeat", 1, "how often to live through each")
	told      = flag.Int("sim.told", 40, "how many of the latest events of a world a failure shows")
	catches   = flag.Int("sim.catches", 1, "how often TestBroken is to catch each variant, to find seeds that do")
	only      = flag.String("sim.broken", "", "the only broken variant that TestBroken runs; empty: all")
)

// TestMain collects garbage seldom: a schedule leaves much, and ends soon.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	goleak.VerifyTestMain(m)
}

// outcome is what came of one schedule.
type outcome struct {
	found          []violation
	story          string
	claims, served int
}

// live lives through one schedule.
func live(t *testing.T, seed uint64, b broken) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(seed, b)
		w.begin()
		w.runFor(chaosFor)
		w.calmDown()
		w.runFor(heartbeatTimeout)
		w.settle(steadyFor-heartbeatTimeout, w.unsteady)
		w.resting = true
		w.settle(restingFor, w.left)
		w.mu.Lock()
		o = outcome{w.found, w.trace.last(*told, w.began), w.claims, w.served}
		w.mu.Unlock()
		w.end()
	})
	return o
}

func wanted() int {
	switch {
	case *schedules > 0:
		return *schedules
	case race.Enabled:
		return 20
	}
	return 500
}

// TestSchedules lives through random schedules, several at a time.
func TestSchedules(t *testing.T) {
	first, last := uint64(1), uint64(wanted())
	if *oneSeed > 0 {
		first, last = *oneSeed, *oneSeed
	}
	var next, claims, served atomic.Int64
	began := time.Now()
	t.Run("all", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint("worker", i), func(t *testing.T) {
				t.Parallel()
				for seed := first + uint64(next.Add(1)) - 1; seed <= last; seed = first + uint64(next.Add(1)) - 1 {
					for range *repeat {
						o := live(t, seed, broken{})
						claims.Add(int64(o.claims))
						served.Add(int64(o.served))
						report(t, seed, o)
					}
				}
			})
		}
	})
	n := last - first + 1
	t.Logf("seeds %d to %d: %d claims, %d requests, %.1f schedules a second", first, last, claims.Load(), served.Load(), float64(n)/time.Since(began).Seconds())
	if *oneSeed == 0 && (claims.Load() < int64(10*n) || served.Load() < int64(50*n)) {
		t.Errorf("%d claims and %d requests show nothing", claims.Load(), served.Load())
	}
}

func report(t *testing.T, seed uint64, o outcome) {
	t.Helper()
	for _, v := range o.found {
		t.Errorf("seed %d: invariant %s: %s\n%s", seed, v.rule, v.text, o.story)
	}
}
