package soak

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func storm(seed uint64) Storm {
	return Storm{
		Seed: seed, Total: time.Minute, PodEvery: 300 * time.Millisecond, PartEvery: 2 * time.Second,
		Restart: time.Second, Freeze: 20 * time.Second, Controllers: 3, Gateways: 2,
		Kinds: []Kind{RestartController, KillController, StopController, FreezeWatch, RestartExtproc, KillExtproc, KillEnvoy, PartitionBoth},
	}
}

func TestPlanFollowsFromItsSeed(t *testing.T) {
	if d := cmp.Diff(storm(1).Plan(), storm(1).Plan()); d != "" {
		t.Errorf("two plans of one seed:\n%s", d)
	}
	if cmp.Equal(storm(1).Plan(), storm(2).Plan()) {
		t.Error("two seeds make the same plan")
	}
}

// bounds are how many targets a kind has, and how long it may last.
func bounds(k Kind) (targets int, most time.Duration) {
	switch k {
	case RestartController, KillController:
		return 3, time.Second
	case StopController, FreezeWatch:
		return 3, 20 * time.Second
	case RestartExtproc, KillExtproc, KillEnvoy:
		return 2, time.Second
	}
	return 2, 20 * time.Second
}

func TestPlanKeepsItsBounds(t *testing.T) {
	deaths, kinds := map[Death]int{}, map[Kind]int{}
	last := time.Duration(0)
	for _, e := range storm(3).Plan() {
		targets, most := bounds(e.Kind)
		if e.At < last || e.At+e.For > time.Minute || e.Target >= targets || e.For > most {
			t.Errorf("%+v after %s is out of bounds", e, last)
		}
		last = e.At
		kinds[e.Kind]++
		if e.Kind == KillPod {
			deaths[e.Death]++
		}
	}
	if len(kinds) != 9 || len(deaths) != 3 || kinds[KillPod] < 100 {
		t.Errorf("kinds %v and deaths %v, want all of them", kinds, deaths)
	}
}

func TestPartsAreApart(t *testing.T) {
	seen := map[string]Kind{}
	for _, k := range []Kind{KillController, FreezeWatch, KillExtproc, KillEnvoy, PartitionBoth} {
		part := Event{Kind: k, Target: 1}.part()
		if other, twice := seen[part]; twice {
			t.Errorf("%s and %s happen to the same part %s", k, other, part)
		}
		seen[part] = k
	}
	if a, b := (Event{Kind: KillController, Target: 1}), (Event{Kind: StopController, Target: 1}); a.part() != b.part() {
		t.Error("a controller may be killed while it is stopped, and would never be started again in time")
	}
}
