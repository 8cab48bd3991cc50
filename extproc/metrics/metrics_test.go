package metrics

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"skipper/proto/reason"
)

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
	m.Sent(Warm, time.Microsecond)
	m.Sent(Cold, time.Second)
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
	if diff := cmp.Diff(want, gather(t, r)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestWarmPathAllocatesNothing(t *testing.T) {
	m := New(prometheus.NewRegistry())
	if n := testing.AllocsPerRun(1000, func() {
		m.Sent(Warm, time.Microsecond)
		m.Closed()
		m.Ended(Over)
	}); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
