package world_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"skipper/xds"
	"skipper/xds/resource"
	"skipper/xds/server/internal/world"
)

const shards = 4

func at(minute int) time.Time { return time.Unix(0, 0).Add(time.Duration(minute) * time.Minute) }

func TestFamilyLivesWhileItIsUsedAndLingers(t *testing.T) {
	w := world.New(world.Options{Shards: shards, Linger: 10 * time.Minute})
	all := map[xds.Protocol][]int{xds.H2C: {0, 1, 2, 3}}
	none := map[xds.Protocol][]int{}
	for _, step := range []struct {
		minute int
		upsert string
		remove string
		want   world.Diff
	}{
		{0, "", "", world.Diff{Touched: none}},
		{1, "a", "", world.Diff{Added: []xds.Protocol{xds.H2C}, Touched: all}},
		{2, "a", "", world.Diff{Touched: none}},
		{3, "", "a", world.Diff{Touched: map[xds.Protocol][]int{xds.H2C: {xds.ShardOf("a", shards)}}}},
		{12, "", "", world.Diff{Touched: none}},
		{12, "b", "", world.Diff{Touched: map[xds.Protocol][]int{xds.H2C: {xds.ShardOf("b", shards)}}}},
		{13, "", "b", world.Diff{Touched: map[xds.Protocol][]int{xds.H2C: {xds.ShardOf("b", shards)}}}},
		{23, "", "", world.Diff{Gone: []xds.Protocol{xds.H2C}, Touched: none}},
		{24, "c", "", world.Diff{Added: []xds.Protocol{xds.H2C}, Touched: all}},
	} {
		if step.remove != "" {
			w.Remove(at(step.minute), step.remove)
		}
		if step.upsert != "" {
			w.Upsert(at(step.minute), resource.Endpoint{UID: step.upsert, Addr: "10.0.0.1:80", Protocol: xds.H2C})
		}
		if diff := gocmp.Diff(step.want, w.Flush(at(step.minute))); diff != "" {
			t.Fatalf("minute %d (-want +got):\n%s", step.minute, diff)
		}
	}
}

func TestAnnouncedFamilyIsThereBeforeItsFirstPod(t *testing.T) {
	w := world.New(world.Options{Shards: shards, Linger: 10 * time.Minute})
	pod := resource.Endpoint{UID: "a", Addr: "10.0.0.1:80", Protocol: xds.H2C}
	for _, step := range []struct {
		name string
		do   func(now time.Time)
		at   int
		want []xds.Protocol // added
		gone []xds.Protocol
	}{
		{"announced", func(now time.Time) { w.Announce(now, xds.H2C) }, 0, []xds.Protocol{xds.H2C}, nil},
		{"announced again", func(now time.Time) { w.Announce(now, xds.H2C) }, 9, nil, nil},
		{"lingers from then on", func(time.Time) {}, 18, nil, nil},
		{"the pod comes", func(now time.Time) { w.Upsert(now, pod) }, 18, nil, nil},
		{"announced beside it", func(now time.Time) { w.Announce(now, xds.H2C) }, 40, nil, nil},
		{"and goes", func(now time.Time) { w.Remove(now, "a") }, 41, nil, nil},
		{"all is over", func(time.Time) {}, 51, nil, []xds.Protocol{xds.H2C}},
	} {
		step.do(at(step.at))
		if d := w.Flush(at(step.at)); !slices.Equal(d.Added, step.want) || !slices.Equal(d.Gone, step.gone) {
			t.Errorf("%s: %+v, want %v added and %v gone", step.name, d, step.want, step.gone)
		}
	}
}

func TestFamilyThatNobodySawIsNotGone(t *testing.T) {
	w := world.New(world.Options{Shards: shards})
	w.Upsert(at(0), resource.Endpoint{UID: "a", Addr: "10.0.0.1:80", Protocol: xds.H2C})
	w.Remove(at(0), "a")
	if d := w.Flush(at(0)); len(d.Gone)+len(d.Added)+len(d.Touched) > 0 {
		t.Errorf("got %+v", d)
	}
}

// TestWorldAgreesWithANaiveOne compares with a plain map of pods after each of
// many random steps, and checks that untouched shards have not changed.
func TestWorldAgreesWithANaiveOne(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		w, naive := world.New(world.Options{Shards: shards}), map[string]resource.Endpoint{}
		seen := map[string][]resource.Endpoint{}
		for range 100 {
			for range r.IntN(4) {
				step(r, w, naive)
			}
			d := w.Flush(at(0))
			for _, p := range []xds.Protocol{xds.HTTP1, xds.H2C} {
				compare(t, w, d, p, naive, seen)
			}
			if w.Len() != len(naive) {
				t.Fatalf("Len is %d, want %d", w.Len(), len(naive))
			}
		}
	}
}

func step(r *rand.Rand, w *world.World, naive map[string]resource.Endpoint) {
	uid := fmt.Sprintf("pod-%d", r.IntN(12))
	if r.IntN(3) == 0 {
		w.Remove(at(0), uid)
		delete(naive, uid)
		return
	}
	e := resource.Endpoint{UID: uid, Addr: fmt.Sprintf("10.0.0.%d:80", r.IntN(5)), Protocol: []xds.Protocol{xds.HTTP1, xds.H2C}[r.IntN(2)]}
	w.Upsert(at(0), e)
	naive[uid] = e
}

func compare(t *testing.T, w *world.World, d world.Diff, p xds.Protocol, naive map[string]resource.Endpoint, seen map[string][]resource.Endpoint) {
	t.Helper()
	for shard := range shards {
		name := xds.ClusterName(p, shard)
		var want []resource.Endpoint
		for _, e := range naive {
			if xds.ShardClusterOf(e.Protocol, e.UID, shards) == name {
				want = append(want, e)
			}
		}
		got := w.Endpoints(p, shard)
		byUID := func(a, b resource.Endpoint) int { return cmp.Compare(a.UID, b.UID) }
		slices.SortFunc(want, byUID)
		slices.SortFunc(got, byUID)
		if !slices.Equal(got, want) {
			t.Fatalf("%s has %v, want %v", name, got, want)
		}
		touched := slices.Contains(d.Touched[p], shard) || slices.Contains(d.Gone, p)
		if !touched && !slices.Equal(got, seen[name]) {
			t.Fatalf("%s changed from %v to %v, and Flush did not say so", name, seen[name], got)
		}
		seen[name] = got
	}
}
