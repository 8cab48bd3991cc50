package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skipper/controller/heartbeat"
	"skipper/controller/pool"
	"skipper/controller/retire"
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

// variants are worlds in which something is broken, and the invariants that are
// to be found broken then.
var variants = []struct {
	name  string
	b     broken
	rules []string
}{
	{"claims without tests", broken{noTests: true}, []string{"3"}},
	{"no protection after a start", broken{unprotected: true}, []string{"5", "7"}},
	{"replicas ignore the ring", broken{ringless: true}, []string{"7"}},
	{"scaling down cuts", broken{cuts: true}, []string{"5", "8"}},
	{"unused after 2 s", broken{impatient: true}, []string{"2", "5", "7"}},
	{"configuration flips", broken{flips: true}, []string{"config"}},
	{"draining counts", broken{countsDraining: true}, []string{"settle", "7"}},
	{"stuck at once", broken{stuckSoon: true}, []string{"8", "5"}},
	{"drain without acknowledgement", broken{noAck: true}, []string{"5"}},
	{"writes forgotten", broken{noOverlay: true}, []string{"7", "3", "8"}},
	{"net asks nobody", broken{blindNet: true}, []string{"5", "2"}},
}

// TestBroken holds that each variant is caught within the schedules that
// TestSchedules runs, and by an invariant that the rule is for.
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
			var others []string
			for seed := range uint64(wanted()) {
				o := live(t, seed+1, v.b)
				for _, f := range o.found {
					if slices.Contains(v.rules, f.rule) {
						t.Logf("caught by schedule %d, invariant %s: %s", seed+1, f.rule, f.text)
						return
					}
					others = append(others, f.rule)
				}
			}
			t.Errorf("not caught by %d schedules; found broken: %s", wanted(), strings.Join(others, ", "))
		})
	}
}
