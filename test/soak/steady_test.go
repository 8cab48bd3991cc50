package soak

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// samples are of one process, one each minute; each is goroutines, files and MB.
func samples(from time.Duration, start float64, of ...[3]float64) []Sample {
	var out []Sample
	for i, q := range of {
		out = append(out, Sample{At: from + time.Duration(i)*time.Minute, Start: start, Goroutines: q[0], Files: q[1], Resident: q[2] * 1e6})
	}
	return out
}

// repeated gives n samples from a formula.
func repeated(n int, f func(i int) [3]float64) [][3]float64 {
	var out [][3]float64
	for i := range n {
		out = append(out, f(i))
	}
	return out
}

func TestSteadyJudge(t *testing.T) {
	rule := Steady{
		WarmUp: 2 * time.Minute, Least: 5 * time.Minute,
		Goroutines: Growth{Amount: 50, Share: .2}, Files: Growth{Amount: 10, Share: .2}, Resident: Growth{Amount: 30e6, Share: .2},
	}
	flat := func(int) [3]float64 { return [3]float64{100, 20, 50} }
	wave := func(i int) [3]float64 {
		return [3]float64{100 + float64(i%2)*300, 20 + float64(i%3)*30, 50 + float64(i%2)*200}
	}
	warming := func(i int) [3]float64 {
		if i < 2 {
			return [3]float64{10, 5, 10}
		}
		return flat(i)
	}
	leaking := func(i int) [3]float64 { return [3]float64{100 + 10*float64(i), 20 + 2*float64(i), 50 + 10*float64(i)} }
	goroutines := func(i int) [3]float64 { return [3]float64{100 + 10*float64(i), 20, 50} }
	falling := func(i int) [3]float64 { return [3]float64{1000 - 10*float64(i), 200 - float64(i), 500 - 10*float64(i)} }
	large := func(i int) [3]float64 { return [3]float64{10_000 + 100*float64(i), 20, 50} } // 8 minutes: 8 %
	for _, row := range []struct {
		name    string
		samples []Sample
		grows   []string // what is found to grow
		judged  int      // quantities that were judged
	}{
		{"nothing", nil, nil, 0},
		{"flat", samples(0, 1, repeated(12, flat)...), nil, 3},
		{"up and down", samples(0, 1, repeated(60, wave)...), nil, 3},
		{"warming up", samples(0, 1, repeated(12, warming)...), nil, 3},
		{"falling", samples(0, 1, repeated(12, falling)...), nil, 3},
		{"within the share", samples(0, 1, repeated(11, large)...), nil, 3},
		{"leaks all", samples(0, 1, repeated(12, leaking)...), []string{"goroutines", "open files", "resident bytes"}, 3},
		{"leaks goroutines", samples(0, 1, repeated(12, goroutines)...), []string{"goroutines"}, 3},
		{"leaks, but too short", samples(0, 1, repeated(6, leaking)...), nil, 0},
		{"a restart begins anew", append(samples(0, 1, repeated(8, flat)...), samples(8*time.Minute, 2, repeated(8, func(i int) [3]float64 {
			return [3]float64{500, 100, 400}
		})...)...), nil, 6},
		{"the second leaks", append(samples(0, 1, repeated(8, flat)...), samples(8*time.Minute, 2, repeated(12, goroutines)...)...), []string{"goroutines"}, 6},
	} {
		t.Run(row.name, func(t *testing.T) {
			var grows []string
			found := rule.Judge(row.samples)
			for _, f := range found {
				if !f.Flat {
					grows = append(grows, f.What)
				}
			}
			if diff := cmp.Diff(row.grows, grows); diff != "" || len(found) != row.judged {
				t.Errorf("%d judged, want %d; what grows (-want +got):\n%s\n%v", len(found), row.judged, diff, found)
			}
		})
	}
}

// Goroutines that come and go with the work are no leak; those that stay are,
// whatever the work does.
func TestWorkIsNoGrowth(t *testing.T) {
	even := func(int) float64 { return 40 }
	late := func(i int) float64 { return float64(100 * (i / 10)) }
	ends := func(i int) float64 { return float64(100 * (2 - i/10)) }
	for _, row := range []struct {
		name       string
		work       func(i int) float64 // three goroutines each
		slow       func(i int) float64 // nine goroutines each
		leak, want float64             // goroutines per minute
	}{
		{"steady work", even, even, 7, 7},
		{"work that comes late", late, even, 0, 0},
		{"work that comes late, and a leak", late, even, 7, 7},
		{"work that ends, and a leak", ends, even, 7, 7},
		{"work that nobody can tell from time", func(i int) float64 { return float64(i) }, even, 0, 3},
		{"work that turns into other work", ends, late, 0, 0},
		{"both kinds come and go", ends, func(i int) float64 { return float64(i % 3) }, 0, 0},
		{"both kinds come and go, and a leak", ends, func(i int) float64 { return float64(i % 3) }, 7, 7},
	} {
		var all []Sample
		for i := range 20 {
			w, s := row.work(i), row.slow(i)
			all = append(all, Sample{At: time.Duration(i) * time.Minute, Work: []float64{w, s}, Goroutines: 50 + 3*w + 9*s + row.leak*float64(i)})
		}
		from, to := trend(all, func(s Sample) float64 { return s.Goroutines })
		if got := (to - from) / 19; got < row.want-.01 || got > row.want+.01 {
			t.Errorf("%s: grows by %.2f a minute, want %.2f", row.name, got, row.want)
		}
	}
}

func TestLineThroughSamples(t *testing.T) {
	from, to := trend(samples(0, 1, [3]float64{1}, [3]float64{3}, [3]float64{5}), func(s Sample) float64 { return s.Goroutines })
	if from < .999 || from > 1.001 || to < 4.999 || to > 5.001 {
		t.Errorf("line from %v to %v, want 1 to 5", from, to)
	}
}

func TestMoreThanBefore(t *testing.T) {
	rule := Steady{Goroutines: Growth{Amount: 50}, Files: Growth{Amount: 10}}
	at := func(goroutines, files float64, work ...float64) map[string]Sample {
		return map[string]Sample{"a": {Start: 1, Goroutines: goroutines, Files: files, Resident: 1e9, Work: work}}
	}
	for _, row := range []struct {
		name string
		now  map[string]Sample
		want string
	}{
		{"the same", at(100, 20, 0, 0), ""},
		{"less", at(10, 2), ""},
		{"a little more", at(150, 30), ""},
		{"gone", nil, "a does not answer"},
		{"busy", at(100, 20, 0, 3), "a has requests in hand: [0 3]"},
		{"goroutines", at(151, 20), "a has 151 goroutines, 100 before"},
		{"files", at(100, 31), "a has 31 open files, 20 before"},
	} {
		if got := strings.Join(rule.More(at(100, 20), row.now), "; "); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}
