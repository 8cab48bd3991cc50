package h2load

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"skipper/test/bench/internal/wrk"
)

func TestParse(t *testing.T) {
	want := wrk.Result{Requests: 4, PerSecond: 4, P50: 300 * time.Millisecond, P99: time.Second, Failed: 2}
	got, err := parse("1000000\t200\t500000\n1000000\t200\t300000\n1400000\t503\t250000\n1000000\t-1\t1000000\n")
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

func TestParseRefusesOtherOutput(t *testing.T) {
	for _, bad := range []string{"", "unable to connect\n", "1\t200\n"} {
		if got, err := parse(bad); err == nil {
			t.Errorf("parse(%q) = %+v, want an error", bad, got)
		}
	}
}
