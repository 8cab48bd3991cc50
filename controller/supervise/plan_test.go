package supervise

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"skipper/controller/pool"
)

func uids(ps []pool.Pod) []string {
	var out []string
	for _, p := range ps {
		out = append(out, p.UID)
	}
	return out
}

func TestVictims(t *testing.T) {
	f, now := function("t", 0, 9, 0), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	notReady := ready(f, "c", now)
	notReady.Ready = false
	all := []pool.Pod{ready(f, "b", now), ready(f, "a", now.Add(-time.Hour)), assigned(f, "d", now.Add(time.Minute)), notReady}
	tests := []struct {
		name string
		n    int
		want []string
	}{
		{"none", 0, nil},
		{"fewer than none", -1, nil},
		{"unready first, oldest of them", 1, []string{"c"}},
		{"then the other unready one", 2, []string{"c", "d"}},
		{"then the oldest", 3, []string{"c", "d", "a"}},
		{"more than there are", 9, []string{"c", "d", "a", "b"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, uids(victims(all, tt.n))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestStuck(t *testing.T) {
	f, now := function("t", 0, 9, 0), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	draining := assigned(f, "draining", now.Add(-time.Hour))
	draining.Draining = true
	all := []pool.Pod{
		assigned(f, "old", now.Add(-time.Minute)), assigned(f, "young", now.Add(-59*time.Second)),
		ready(f, "ready", now.Add(-time.Hour)), draining,
	}
	if diff := cmp.Diff([]string{"old"}, uids(stuck(all, time.Minute, now.Add(-time.Hour), now))); diff != "" {
		t.Errorf("stuck (-want +got):\n%s", diff)
	}
	if got := stuck(all, time.Minute, now.Add(-time.Second), now); len(got) != 0 {
		t.Errorf("stuck just after the start: %v, want none", uids(got))
	}
}

// A time that somebody wrote by hand spares no pod for ever.
func TestTimesOfTheFarFutureAreNotBelieved(t *testing.T) {
	f, now := function("t", 0, 9, 0), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	long := now.Add(-time.Hour)
	for _, row := range []struct {
		name string
		at   time.Time
		last time.Time
		gone int
	}{
		{"a minute ahead", now.Add(time.Minute), now.Add(time.Minute), 0},
		{"a year ahead", now.AddDate(1, 0, 0), time.Time{}, 1},
	} {
		waits, serves := assigned(f, "a", row.at), ready(f, "b", row.at)
		if got := stuck([]pool.Pod{waits}, time.Minute, long, now); len(got) != row.gone {
			t.Errorf("%s: %d are stuck, want %d", row.name, len(got), row.gone)
		}
		if got := orphans([]pool.Pod{serves}, nil, time.Minute, long, now); len(got) != row.gone {
			t.Errorf("%s: %d are orphans, want %d", row.name, len(got), row.gone)
		}
		if got := lastAssigned([]pool.Pod{serves}, now); !got.Equal(row.last) {
			t.Errorf("%s: last assigned %v, want %v", row.name, got, row.last)
		}
	}
}

func TestOrphans(t *testing.T) {
	f, now := function("t", 0, 9, 0), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	long := now.Add(-time.Hour)
	all := []pool.Pod{ready(f, "orphan", long), ready(f, "busy", long), ready(f, "young", now.Add(-time.Minute)), assigned(f, "unready", long)}
	busy := map[string]time.Time{"busy": now.Add(-time.Minute), "orphan": now.Add(-91 * time.Second)}
	if diff := cmp.Diff([]string{"orphan", "unready"}, uids(orphans(all, busy, 90*time.Second, long, now))); diff != "" {
		t.Errorf("orphans (-want +got):\n%s", diff)
	}
	if got := orphans(all, nil, 90*time.Second, now.Add(-90*time.Second), now); len(got) != 0 {
		t.Errorf("orphans just after the start: %v, want none", uids(got))
	}
}
