package pool

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func describe(e Event) string {
	s := [...]string{"added", "changed", "removed"}[e.Kind] + " " + e.Pod().UID
	if e.Old != nil {
		s += fmt.Sprint(" from ", e.Old.State())
	}
	if e.New != nil {
		s += fmt.Sprint(" to ", e.New.State())
	}
	return s
}

func TestListenTellsAllInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewView()
		v.Apply(freePod("a", 1))
		var got []string
		defer v.Listen(func(e Event) { got = append(got, describe(e)) })()
		synctest.Wait()
		v.Apply(freePod("b", 2))
		synctest.Wait()
		v.ExpectWritten(claimed(freePod("a", 1), "t1", 3))
		synctest.Wait()
		v.Apply(claimed(freePod("a", 1), "t1", 4)) // nothing new
		v.Remove("prod", "b", 5)
		synctest.Wait()
		want := []string{
			"added a to unassigned", "added b to unassigned",
			"changed a from unassigned to assigned", "removed b from unassigned",
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// A list that lacks the pod counts only from the version of those that had it,
// so the informer's word is an event although it says nothing new.
func TestListenTellsWhenTheInformerHasSeenAnEnd(t *testing.T) {
	ends := map[string]func(*View, Pod){
		"drained": func(v *View, p Pod) {
			v.ExpectDraining("a", noon)
			p.Draining, p.DrainingAt, p.Version = true, noon, 4
			v.ExpectWritten(p)
			synctest.Wait()
			v.Apply(p)
		},
		"deleted": func(v *View, p Pod) {
			v.ExpectDeleted("a")
			synctest.Wait()
			p.Deleting, p.Version = true, 4
			v.Apply(p)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := NewView()
				ready := claimed(freePod("a", 1), "t1", 2)
				ready.ReadyAt = noon
				v.Apply(freePod("a", 1))
				v.ExpectWritten(ready)
				var seen []uint64
				defer v.Listen(func(Event) { seen = append(seen, v.Watermark("prod")) })()
				synctest.Wait()
				end(v, ready)
				synctest.Wait()
				if last := seen[len(seen)-1]; last != 4 {
					t.Errorf("events at watermarks %v, the last must be at 4", seen)
				}
			})
		})
	}
}

func TestSlowListenerHoldsNobodyUpAndSeesTheTruth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewView()
		v.Apply(freePod("a", 1))
		var got []string
		release := make(chan struct{})
		cancel := v.Listen(func(e Event) {
			<-release
			got = append(got, describe(e))
		})
		synctest.Wait() // it holds on to the first event
		v.Apply(freePod("b", 2))
		v.Apply(freePod("c", 3))
		v.Apply(claimed(freePod("a", 1), "t1", 4))
		v.Remove("prod", "c", 5)
		v.Apply(claimed(freePod("b", 2), "t1", 6))
		v.ExpectDeleted("a")
		close(release)
		synctest.Wait()
		cancel()
		cancel() // twice is harmless
		want := []string{"added a to unassigned", "added b to assigned", "changed a from unassigned to terminating"}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// Whoever reads the View while a listener is late may tell others of a pod, and
// the listener must learn of the function that they heard of.
func TestSlowListenerLearnsWhoseAPodWas(t *testing.T) {
	for name, before := range map[string]func(*View){
		"claimed here":      func(v *View) { v.Apply(freePod("a", 1)) },
		"claimed by others": func(*View) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, gate := NewView(), make(chan struct{})
				before(v)
				v.Apply(freePod("slow", 1))
				var got []string
				defer v.Listen(func(e Event) {
					<-gate
					for _, p := range []*Pod{e.Old, e.New} {
						if p != nil && p.Function != nil {
							got = append(got, describe(e))
							break
						}
					}
				})()
				synctest.Wait()
				v.Apply(claimed(freePod("a", 1), "t1", 3))
				v.Remove("prod", "a", 4)
				close(gate)
				synctest.Wait()
				if len(got) == 0 || got[len(got)-1] != "removed a from assigned" {
					t.Errorf("events of functions: %v", got)
				}
			})
		})
	}
}

// TestListenerEndsWithTheTruth replays events into a map and compares it with
// the View, whatever was merged on the way.
func TestListenerEndsWithTheTruth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(7, 7))
		v := NewView()
		seen := map[string]Pod{}
		defer v.Listen(func(e Event) {
			old, had := seen[e.Pod().UID]
			if had != (e.Old != nil) || had && !same(old, *e.Old) {
				t.Errorf("event %s does not follow from what was told before", describe(e))
			}
			delete(seen, e.Pod().UID)
			if e.New != nil {
				seen[e.New.UID] = *e.New
			}
		})()
		for step := range uint64(3000) {
			randomEvent(r, v, step+1)
			if r.IntN(5) == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		for _, p := range v.All() {
			if got := seen[p.UID]; !same(got, p) {
				t.Errorf("pod %s: listener has %s, View %s", p.UID, got.State(), p.State())
			}
		}
		if len(seen) != len(v.All()) {
			t.Errorf("listener has %d pods, View %d", len(seen), len(v.All()))
		}
	})
}

func TestCollector(t *testing.T) {
	v := NewView()
	v.Apply(freePod("a", 1))
	unready := freePod("b", 2)
	unready.Ready = false
	v.Apply(unready)
	v.Apply(claimed(freePod("c", 3), "t1", 3))
	v.ApplyReplicaSet(ReplicaSet{Namespace: "prod", Name: "rs", Deployment: "empty"})
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(NewCollector(v))
	want := `
# HELP skipper_controller_unassigned_pods Unclaimed pods of each pool; only ready ones can be claimed.
# TYPE skipper_controller_unassigned_pods gauge
skipper_controller_unassigned_pods{deployment="echo",namespace="prod",ready="false"} 1
skipper_controller_unassigned_pods{deployment="echo",namespace="prod",ready="true"} 1
skipper_controller_unassigned_pods{deployment="empty",namespace="prod",ready="false"} 0
skipper_controller_unassigned_pods{deployment="empty",namespace="prod",ready="true"} 0
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "skipper_controller_unassigned_pods"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(r, "skipper_controller_pods"); err != nil || n != int(Dead)+1 {
		t.Errorf("%d states are shown: %v", n, err)
	}
}
