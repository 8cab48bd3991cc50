package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skipper/controller/acquire"
	"skipper/controller/heartbeat"
	"skipper/controller/pool"
	"skipper/controller/retire"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/test/race"
)

// broken is how a world differs from the real one: the rules that its
// controllers break. The zero value breaks none.
type broken struct {
	noTests        bool // claims are not compare-and-set
	unprotected    bool // a controller that has just started believes to know everything
	ringless       bool // every replica believes to be responsible
	cuts           bool // scaling down deletes at once
	impatient      bool // a function, and a oneshot's pod, counts as unused after 2 s
	flips          bool // a new configuration is in force at once
	countsDraining bool // draining instances count
	stuckSoon      bool // an instance is stuck after a fraction of a second
	noAck          bool // a drain does not wait until everybody has heard of it
	noOverlay      bool // what was written is forgotten when an old object is shown
	blindNet       bool // the net below oneshots does not ask what is in progress
	abrupt         bool // what may serve elsewhere is deleted, not drained
	askedIsStuck   bool // who is only just asked to accept is deleted as stuck
}

func (b broken) assignTimeout() time.Duration {
	if b.stuckSoon {
		return 50 * time.Millisecond
	}
	return assignTimeout
}

func (b broken) agreement() time.Duration {
	if b.flips {
		return 1
	}
	return agreement
}

func (b broken) witnesses(w retire.Witnesses) retire.Witnesses {
	if b.noAck {
		w.Acknowledged = func(string) (time.Time, bool) { return time.Now().Add(-time.Hour), true }
	}
	return w
}

// countingPods show draining instances as if they did not drain.
type countingPods struct{ *pool.View }

func (v countingPods) Instances(k fn.Key) []pool.Pod {
	all := v.View.Instances(k)
	for i := range all {
		all[i].Draining = false
	}
	return all
}

// supervised is what supervisors read of the cluster.
type supervised interface {
	Instances(key fn.Key) []pool.Pod
	ReplicaSets(namespace, deployment string) []pool.ReplicaSet
	Unassigned(namespace, deployment string) []*pool.Pod
}

func (b broken) pods(v *pool.View) supervised {
	if b.countsDraining {
		return countingPods{v}
	}
	return v
}

// activity is what supervisors read of requests.
type activity interface {
	Activity(key fn.Key, now time.Time) heartbeat.Activity
	InFlightOf(key fn.Key, uid string, now time.Time) (n uint64, known bool)
	Named(key fn.Key, uid string, now time.Time) (at time.Time, ok bool)
	Forget(key fn.Key)
}

// blind knows of no requests on pods.
type blind struct{ activity }

func (blind) InFlightOf(fn.Key, string, time.Time) (uint64, bool)     { return 0, true }
func (blind) Named(fn.Key, string, time.Time) (at time.Time, ok bool) { return time.Time{}, false }

func (b broken) activity(real activity) activity {
	if b.blindNet {
		return blind{real}
	}
	return real
}

// hasty says of nobody that it is being asked.
type hasty struct{ *acquire.Acquirer }

func (h hasty) TakeUp(ctx context.Context, key fn.Key) map[string]bool {
	h.Acquirer.TakeUp(ctx, key)
	return nil
}

// acquirer is what supervisors have instances from.
type acquirer interface {
	GetOrAcquire(ctx context.Context, f *skipperpb.Function, exclude []string) (pool.Pod, error)
	Acquire(ctx context.Context, f *skipperpb.Function) (pool.Pod, error)
	Replace(ctx context.Context, f *skipperpb.Function) (pool.Pod, error)
	Rewrite(p pool.Pod, f *skipperpb.Function) error
	Reassign(ctx context.Context, p pool.Pod) error
	TakeUp(ctx context.Context, key fn.Key) (asked map[string]bool)
}

func (b broken) acquirer(real *acquire.Acquirer) acquirer {
	if b.askedIsStuck {
		return hasty{real}
	}
	return real
}

// variants are worlds in which something is broken, the invariants that are to
// be found broken then, and seeds of schedules that have shown it.
var variants = []struct {
	name  string
	b     broken
	rules []string
	seeds []uint64
}{
	{"claims without tests", broken{noTests: true}, []string{"3"}, []uint64{6, 8, 10, 16}},
	{"no protection after a start", broken{unprotected: true}, []string{"5", "7"}, []uint64{16, 47, 54}},
	{"replicas ignore the ring", broken{ringless: true}, []string{"7"}, []uint64{1, 3, 4, 5}},
	{"scaling down cuts", broken{cuts: true}, []string{"5", "8"}, []uint64{1, 2, 3, 4}},
	{"unused after 2 s", broken{impatient: true}, []string{"2", "5", "7"}, []uint64{3, 4, 5, 6}},
	{"configuration flips", broken{flips: true}, []string{"config"}, []uint64{6, 13, 18, 31}},
	{"draining counts", broken{countsDraining: true}, []string{"settle", "7"}, []uint64{29, 32}},
	{"stuck at once", broken{stuckSoon: true, askedIsStuck: true, abrupt: true}, []string{"8", "5"}, []uint64{68, 17}},
	{"drain without acknowledgement", broken{noAck: true}, []string{"5"}, []uint64{14, 130}},
	{"writes forgotten", broken{noOverlay: true}, []string{"7", "3", "8"}, []uint64{23, 26, 36}},
	{"net asks nobody", broken{blindNet: true, abrupt: true}, []string{"5", "2"}, []uint64{3, 7, 8, 11}},
}

// TestBroken holds that each variant is caught within the schedules that
// TestSchedules runs, and by an invariant that the rule is for. The seeds that
// have shown it come first, and the test ends with the first catch.
func TestBroken(t *testing.T) {
	if race.Enabled {
		t.Skip("runs without the race detector")
	}
	for _, v := range variants {
		if *only != "" && *only != v.name {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			var others, caught []string
			for i := range len(v.seeds) + wanted() {
				seed := uint64(i - len(v.seeds) + 1) //nolint:gosec // not below zero where it is used
				if i < len(v.seeds) {
					seed = v.seeds[i]
				}
				o := live(t, seed, v.b)
				for _, f := range o.found {
					if !slices.Contains(v.rules, f.rule) {
						others = append(others, f.rule)
						continue
					}
					caught = append(caught, fmt.Sprint(seed))
					t.Logf("caught by schedule %d, the %d. that was tried, invariant %s: %s", seed, i+1, f.rule, f.text)
					break
				}
				if len(caught) == *catches {
					t.Logf("caught by %s", strings.Join(caught, ", "))
					return
				}
			}
			t.Errorf("caught by %d of %d schedules; found broken besides: %s", len(caught), wanted(), strings.Join(others, ", "))
		})
	}
}
