package pick

import (
	"math/rand/v2"
	"testing"
	"time"

	"skipper/extproc/table"
)

func TestOverloaded(t *testing.T) {
	for _, row := range []struct {
		near, elsewhere int64
		want            bool
	}{
		{0, 0, false}, {4, 0, false}, {5, 0, true}, {6, 1, false}, {7, 1, true}, {24, 10, false}, {25, 10, true}, {3, 100, false},
	} {
		if got := overloaded(row.near, row.elsewhere); got != row.want {
			t.Errorf("%d here, %d elsewhere: %v, want %v", row.near, row.elsewhere, got, row.want)
		}
	}
}

// take acquires n times and counts by zone; nothing ends meanwhile.
func take(t *testing.T, f *table.Function, n int, w Want) map[string]int {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	out := map[string]int{}
	for range n {
		l, ok := Acquire(f, w, r.Uint64)
		if !ok {
			t.Fatal("nothing was picked")
		}
		out[l.Instance.Proto.GetZone()]++
	}
	return out
}

func TestZone(t *testing.T) {
	zones := []string{"a", "b", "b", "a", "b", "b"}
	for _, row := range []struct {
		name  string
		zone  string
		zones []string
		n     int
		want  Want
		ok    func(map[string]int) bool
	}{
		{"little stays near", "a", zones, 8, Want{}, func(m map[string]int) bool { return m["a"] == 8 }},
		{"much spills over, in bounds", "a", zones, 600, Want{}, func(m map[string]int) bool { return m["b"] > 200 && m["a"] > 250 }},
		{"none is near", "c", zones, 600, Want{}, func(m map[string]int) bool { return m["a"] > 150 && m["b"] > 350 }},
		{"the zone is unknown", "", zones, 600, Want{}, func(m map[string]int) bool { return m["a"] > 150 && m["b"] > 350 }},
		{"pods do not tell", "a", nil, 600, Want{}, func(m map[string]int) bool { return m[""] == 600 }},
		{"more than the limit: the newest", "a", zones, 8, Want{Limit: 2}, func(m map[string]int) bool { return m["b"] == 8 }},
		{"those nearby failed already", "a", zones, 8, Want{Not: []string{"uid-1", "uid-4"}}, func(m map[string]int) bool { return m["b"] == 8 }},
	} {
		if got := take(t, placed(t, 6, row.zone, row.zones...), row.n, row.want); !row.ok(got) {
			t.Errorf("%s: %v", row.name, got)
		}
	}
}

func TestNearInQuarantineYields(t *testing.T) {
	f := placed(t, 3, "a", "a", "b", "b")
	now := time.Unix(1000, 0)
	for range 2 {
		f.View().Near[0].Fail(now, time.Minute)
	}
	if got := take(t, f, 4, Want{Now: now}); got["b"] != 4 {
		t.Errorf("%v, want none in quarantine", got)
	}
}

// However the load is spread already, a request goes elsewhere only if some
// instance nearby is overloaded against the one that it goes to.
func TestElsewhereOnlyForOverload(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	seen := map[bool]int{}
	for range 300 {
		zones := make([]string, 1+r.IntN(6))
		for i := range zones {
			zones[i] = string(rune('a' + r.IntN(3)))
		}
		f := placed(t, len(zones), "a", zones...)
		for _, i := range f.View().Instances {
			for range r.IntN(40) {
				f.Acquire(f.View(), i)
			}
		}
		before, busiest := counts(f), int64(-1)
		for _, i := range f.View().Near {
			busiest = max(busiest, before[i.UID])
		}
		l, ok := Acquire(f, Want{}, r.Uint64)
		if !ok {
			t.Fatal("nothing was picked")
		}
		near := l.Instance.Proto.GetZone() == "a"
		seen[near]++
		if busiest >= 0 && !near && !overloaded(busiest, before[l.Instance.UID]) {
			t.Fatalf("%s was picked though none is overloaded against it: %v", l.Instance.UID, before)
		}
	}
	if seen[true] < 30 || seen[false] < 30 {
		t.Errorf("picked nearby or not: %v, which shows nothing", seen)
	}
}
