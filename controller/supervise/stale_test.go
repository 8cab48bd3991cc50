package supervise

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
)

func TestStaleOf(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	v1 := function("t", 0, 3, 0)
	v2 := changed(v1, func(f *skipperpb.Function) { f.Metadata = "v2" })
	wider := changed(v1, func(f *skipperpb.Function) { f.Scale.MaxInstances = 9 })
	draining, forgotten := ofSet(ready(v1, "draining", now), "old"), ofSet(assigned(v1, "forgotten", now), "old")
	draining.Draining, forgotten.Forgotten = true, true
	all := []pool.Pod{
		ofSet(ready(v1, "old-1", now), "old"), ofSet(ready(v1, "new-1", now), "new"), ofSet(ready(v2, "new-2", now), "new"),
		ofSet(ready(v1, "gone-1", now), "gone"), ofSet(ready(v1, "nobody-1", now), ""),
		ofSet(assigned(v1, "unready", now), "old"), draining, forgotten,
	}
	active, other := pool.ReplicaSet{Name: "new", Replicas: 3, Revision: 2}, pool.ReplicaSet{Name: "old", Revision: 1}
	surging := other
	surging.Replicas = 1
	tests := []struct {
		name    string
		sets    []pool.ReplicaSet
		inForce *skipperpb.Function
		want    []string
	}{
		{"old one scaled to zero, another gone", []pool.ReplicaSet{active, other}, v1, []string{"old-1", "new-2", "gone-1"}},
		{"old one still makes pods", []pool.ReplicaSet{active, surging}, v1, []string{"new-2", "gone-1"}},
		{"nobody makes pods", []pool.ReplicaSet{other}, v1, []string{"new-2"}},
		{"no ReplicaSet known", nil, v1, []string{"new-2"}},
		{"other metadata in force", []pool.ReplicaSet{active, surging}, v2, []string{"old-1", "new-1", "gone-1", "nobody-1"}},
		{"only scale differs", []pool.ReplicaSet{active, surging}, wider, []string{"new-2", "gone-1"}},
		{"nothing in force", []pool.ReplicaSet{active, other}, nil, []string{"old-1", "gone-1"}},
	}
	for _, tt := range tests {
		var got []string
		for _, s := range staleOf(all, tt.sets, tt.inForce, now.Add(time.Minute)) {
			if got = append(got, s.pod.UID); s.why == "" {
				t.Errorf("%s: %s without a reason", tt.name, s.pod.UID)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: stale (-want +got):\n%s", tt.name, diff)
		}
	}
	if got := staleness(all[3], []pool.ReplicaSet{active}, v1, now.Add(59*time.Second)); got != "" {
		t.Errorf("just claimed, its ReplicaSet may be about to be seen: %s", got)
	}
	if diff := cmp.Diff([]string{"old-1", "new-1", "gone-1", "nobody-1"}, uids(misnamed(all, wider))); diff != "" {
		t.Errorf("to be written anew (-want +got):\n%s", diff)
	}
	if got := misnamed(all, v1); len(got) != 0 {
		t.Errorf("to be written anew: %v, want none", uids(got))
	}
}

func TestSpares(t *testing.T) {
	sets := []pool.ReplicaSet{{Name: "new", Replicas: 2}, {Name: "old"}}
	spare := pool.Pod{UID: "a", Name: "a", IP: "10.0.0.1", Port: 80, Protocol: "http1", Ready: true, ReplicaSet: "new", OwnedByReplicaSet: true}
	unready, old := spare, spare
	unready.Ready, old.ReplicaSet = false, "old"
	if n := spares([]*pool.Pod{&spare, &unready, &old}, sets); n != 1 {
		t.Errorf("%d spares, want the ready one of the active ReplicaSet", n)
	}
}

func TestRoomToBegin(t *testing.T) {
	tests := []struct {
		name string
		room room
		want int
	}{
		{"nothing stale", room{stale: 0, present: 1, counted: 1, desired: 1, most: 6, slots: 10, spares: 10}, 0},
		{"at the maximum one more may be", room{stale: 5, present: 5, counted: 5, desired: 5, most: 6, slots: 10, spares: 10}, 1},
		{"below the maximum more at once", room{stale: 3, present: 3, counted: 3, desired: 3, most: 6, slots: 10, spares: 10}, 3},
		{"growth comes first", room{stale: 3, present: 3, growing: 2, counted: 3, desired: 5, most: 6, slots: 10, spares: 10}, 0},
		{"what grows counts", room{stale: 3, present: 5, growing: 2, counted: 3, coming: 2, desired: 5, most: 8, slots: 10, spares: 10}, 1},
		{"those that only drain are no growth", room{stale: 3, present: 5, counted: 4, coming: 0, desired: 5, most: 8, slots: 10, spares: 10}, 0},
		{"one is under replacement and claimed", room{stale: 4, present: 6, growing: 1, counted: 5, desired: 5, most: 6, slots: 9, spares: 10}, 0},
		{"while scaling down", room{stale: 3, present: 3, counted: 3, desired: 2, most: 6, slots: 10, spares: 10}, 0},
		{"places of the controller", room{stale: 3, present: 3, counted: 3, desired: 3, most: 9, slots: 2, spares: 10}, 2},
		{"pods of the pool", room{stale: 3, present: 3, counted: 3, desired: 3, most: 9, slots: 10, spares: 1}, 1},
		{"above a lowered maximum", room{stale: 3, present: 8, counted: 8, desired: 8, most: 6, slots: 10, spares: 10}, 0},
		{"places lowered below what is taken", room{stale: 3, present: 3, counted: 3, desired: 3, most: 9, slots: -2, spares: 10}, 0},
	}
	for _, tt := range tests {
		if got := tt.room.begin(); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestRoomMatchesOneByOne begins replacements one at a time until a rule says stop.
func TestRoomMatchesOneByOne(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		r := room{
			stale: rnd.IntN(6), present: rnd.IntN(8), growing: rnd.IntN(3), most: 1 + rnd.IntN(9),
			desired: rnd.IntN(8), counted: rnd.IntN(8), coming: rnd.IntN(3), slots: rnd.IntN(6) - 1, spares: rnd.IntN(6),
		}
		n := 0
		for n < r.stale && r.desired >= r.counted && r.desired-r.counted <= r.coming && n < r.slots && n < r.spares && r.present+r.growing+n < r.most {
			n++
		}
		if got := r.begin(); got != n {
			t.Fatalf("%+v: %d, want %d", r, got, n)
		}
	}
}

func TestForce(t *testing.T) {
	a := function("t", 0, 3, 0)
	b := changed(a, func(f *skipperpb.Function) { f.Metadata = "b" })
	c := changed(a, func(f *skipperpb.Function) { f.Scale.MaxInstances = 7 })
	type word struct {
		at   int // seconds
		says *skipperpb.Function
	}
	tests := []struct {
		name      string
		words     []word
		want      *skipperpb.Function
		contested int
	}{
		{"the first", []word{{0, a}}, a, 0},
		{"a new one at once", []word{{0, a}, {1, b}}, a, 0},
		{"a new one just before the end of the grace", []word{{0, a}, {1, b}, {14, b}}, a, 0},
		{"a new one after it", []word{{0, a}, {1, b}, {15, b}}, b, 0},
		{"a new scale", []word{{0, a}, {1, c}, {15, c}}, c, 0},
		{"after a long silence", []word{{0, a}, {600, b}}, b, 0},
		{"the old one is spoken of again", []word{{0, a}, {5, b}, {10, a}, {15, b}, {20, b}}, a, 1},
		{"alternating for long", []word{{0, a}, {5, b}, {10, a}, {15, b}, {20, a}, {25, b}, {30, a}, {35, b}, {40, a}, {45, b}}, a, 1},
		{"two contests", []word{{0, a}, {5, b}, {10, a}, {15, b}, {20, a}, {60, a}, {65, b}, {70, a}, {75, b}, {80, a}}, a, 2},
		{"three at once, the last one that is heard", []word{{0, a}, {5, b}, {10, c}, {15, c}}, c, 0},
		{"one word of another", []word{{0, a}, {5, b}, {10, a}, {30, a}}, a, 0},
	}
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range tests {
		var f force
		contests := 0
		for _, w := range tt.words {
			if f.heard(w.says, 15*time.Second, base.Add(time.Duration(w.at)*time.Second)) == contested {
				contests++
			}
		}
		if !proto.Equal(f.current, tt.want) || contests != tt.contested {
			t.Errorf("%s: %v in force with %d contests, want %v with %d", tt.name, f.current, contests, tt.want, tt.contested)
		}
	}
}

func TestForceOfFoundInstances(t *testing.T) {
	a := function("t", 0, 3, 0)
	b := changed(a, func(f *skipperpb.Function) { f.Metadata = "b" })
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var f force
	f.found(b, base, base)
	f.found(a, base.Add(-time.Hour), base)
	if f.current != b {
		t.Error("an older instance counts more than a newer one")
	}
	f.heard(a, 15*time.Second, base.Add(time.Second))
	f.found(b, base.Add(time.Hour), base.Add(2*time.Second)) // a rival's instance
	if f.heard(a, 15*time.Second, base.Add(15*time.Second)) != takenOver || f.current != a {
		t.Errorf("%v in force, want what callers say", f.current)
	}
	f.found(b, base.Add(2*time.Hour), base.Add(20*time.Second))
	if f.current != a {
		t.Error("an instance counts more than a caller")
	}
}

// TestForceMatchesNaive replays the whole history for each word.
func TestForceMatchesNaive(t *testing.T) {
	const grace = 15 * time.Second
	options := []*skipperpb.Function{function("t", 0, 1, 0), function("t", 0, 2, 0)}
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		var f force
		last := map[*skipperpb.Function]time.Time{}
		var inForce *skipperpb.Function
		now := base
		for range 100 {
			now = now.Add(time.Duration(1+rnd.IntN(12)) * time.Second)
			says := options[rnd.IntN(2)]
			last[says] = now
			if inForce == nil || (says != inForce && now.Sub(last[inForce]) >= grace) {
				inForce = says
			}
			f.heard(says, grace, now)
			if f.current != inForce {
				t.Fatalf("seed %d at %s: %v in force, want %v", seed, now.Sub(base), f.current, inForce)
			}
		}
	}
}

func TestQuiet(t *testing.T) {
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var q quiet[string]
	said := 0
	for s := 0; s < 24*3600; s += 15 {
		if _, ok := q.says("same", base.Add(time.Duration(s)*time.Second)); ok {
			said++
		}
	}
	if said < 20 || said > 35 {
		t.Errorf("the same was said %d times a day, want about one an hour", said)
	}
	if _, ok := q.says("another", base.Add(24*time.Hour)); !ok {
		t.Error("something new was kept back")
	}
	q.over()
	if _, ok := q.says("another", base.Add(24*time.Hour)); !ok {
		t.Error("what was over was not said again")
	}
}
