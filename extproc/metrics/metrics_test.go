package metrics

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/codes"

	"skipper/proto/reason"
)

var update = flag.Bool("update", false, "write testdata afresh")

// gather reads every sample as name{label} to value; histograms as their count.
func gather(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			if len(m.GetLabel()) > 0 {
				name += "{" + m.GetLabel()[0].GetValue() + "}"
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

func TestMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	m := New(r)
	Watch(r, Sources{
		Waiting: func() int { return 3 }, Functions: func() int { return 4 }, TableAge: func() time.Duration { return 1500 * time.Millisecond },
	})
	m.Sent(Warm, FromTable, time.Microsecond)
	m.Sent(Cold, FromController, time.Second)
	m.Picked(FromController)
	m.Waited(TimedOut, time.Second)
	m.Closed()
	m.Decided(Health)
	m.Decided(Abandoned)
	m.Refused(reason.HeaderMissing)
	m.Ended(Over)
	m.Ended(Lost)
	m.GotInstance(codes.Unavailable, time.Second)
	m.Beat(codes.OK)
	m.Released()
	m.GivenUp()
	m.Dropped()
	m.Decided(Resent)
	m.Again(Failed)
	m.Again(LostRecord)
	m.Quarantined()
	m.Passes(2)
	want := map[string]float64{
		"skipper_extproc_streams_total{warm}": 1, "skipper_extproc_streams_total{cold}": 1, "skipper_extproc_streams_total{health}": 1,
		"skipper_extproc_streams_total{refused}": 1, "skipper_extproc_streams_total{abandoned}": 1, "skipper_extproc_streams_total{silent}": 0,
		"skipper_extproc_streams_total{resent}":        1,
		"skipper_extproc_second_passes_total{unknown}": 0, "skipper_extproc_second_passes_total{failed}": 1, "skipper_extproc_second_passes_total{lost_record}": 1,
		"skipper_extproc_quarantines_total": 1, "skipper_extproc_request_passes": 1,
		"skipper_extproc_stream_ends_total{over}": 1, "skipper_extproc_stream_ends_total{lost}": 1, "skipper_extproc_stream_ends_total{turned}": 0,
		"skipper_extproc_refusals_total{header_missing}": 1,
		"skipper_extproc_decision_seconds{warm}":         1, "skipper_extproc_decision_seconds{cold}": 1,
		"skipper_extproc_in_flight_requests":              1,
		"skipper_extproc_get_instance_total{Unavailable}": 1, "skipper_extproc_get_instance_seconds": 1,
		"skipper_extproc_heartbeats_total{OK}":     1,
		"skipper_extproc_releases_total{released}": 1, "skipper_extproc_releases_total{given_up}": 1, "skipper_extproc_releases_total{dropped}": 1,
		"skipper_extproc_hold_queue_requests": 3, "skipper_extproc_table_functions": 4, "skipper_extproc_table_age_seconds": 1.5,
	}
	want["skipper_extproc_picks_total{table}"], want["skipper_extproc_picks_total{controller}"] = 1, 2
	want["skipper_extproc_hold_seconds{timed_out}"] = 1
	got := gather(t, r)
	for k, v := range got {
		if _, expected := want[k]; v == 0 && !expected {
			delete(got, k) // there from the start
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestWarmPathAllocatesNothing(t *testing.T) {
	m := New(prometheus.NewRegistry())
	if n := testing.AllocsPerRun(1000, func() {
		m.Sent(Warm, FromTable, time.Microsecond)
		m.Closed()
		m.Ended(Over)
	}); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// describe writes what there is, without values.
func describe(families []*dto.MetricFamily) string {
	var b strings.Builder
	for _, f := range families {
		fmt.Fprintf(&b, "%s %s\n  %s\n", f.GetName(), strings.ToLower(f.GetType().String()), f.GetHelp())
		labels := map[string][]string{}
		var names []string
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if labels[l.GetName()] == nil {
					names = append(names, l.GetName())
				}
				labels[l.GetName()] = append(labels[l.GetName()], l.GetValue())
			}
		}
		for _, n := range names {
			fmt.Fprintf(&b, "  %s: %s\n", n, strings.Join(labels[n], " "))
		}
	}
	return b.String()
}

// TestMetricsAreGolden: names, types, labels and help are what dashboards and
// operators go by, and all series are there before anything has happened.
func TestMetricsAreGolden(t *testing.T) {
	r := prometheus.NewRegistry()
	New(r)
	Watch(r, Sources{Waiting: func() int { return 0 }, Functions: func() int { return 0 }, TableAge: func() time.Duration { return 0 }})
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	golden, got := filepath.Join("testdata", "metrics.txt"), describe(families)
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("metrics (-want +got), -update writes them afresh:\n%s", diff)
	}
}

// TestDecisionsAgreeWithAPlainHistogram: many goroutines, several shards.
func TestDecisionsAgreeWithAPlainHistogram(t *testing.T) {
	var bounds []float64
	for _, b := range decisionBounds {
		bounds = append(bounds, b.Seconds())
	}
	plain := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "plain", Buckets: bounds})
	m := &Metrics{requests: newRequests(8)}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2000 {
				took := time.Duration(rand.Int64N(int64(time.Minute))) >> rand.IntN(36)
				m.Sent(Warm, FromTable, took)
				plain.Observe(took.Seconds())
			}
			m.Sent(Warm, FromTable, time.Millisecond) // on a bound
			plain.Observe(time.Millisecond.Seconds())
		})
	}
	all.Wait()
	var got, want dto.Metric
	if err := m.requests.histogram(0, "warm").Write(&got); err != nil {
		t.Fatal(err)
	}
	if err := plain.Write(&want); err != nil {
		t.Fatal(err)
	}
	for i, b := range want.GetHistogram().GetBucket() {
		if g := got.GetHistogram().GetBucket()[i]; g.GetUpperBound() != b.GetUpperBound() || g.GetCumulativeCount() != b.GetCumulativeCount() {
			t.Errorf("bucket %d is %v, want %v", i, g, b)
		}
	}
	if g, w := got.GetHistogram().GetSampleSum(), want.GetHistogram().GetSampleSum(); g < w*0.999 || g > w*1.001 {
		t.Errorf("sum is %v, want %v", g, w)
	}
}

func BenchmarkWarmRequest(b *testing.B) {
	m := New(prometheus.NewRegistry())
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.Sent(Warm, FromTable, 3*time.Microsecond)
			m.Closed()
			m.Ended(Over)
		}
	})
}
