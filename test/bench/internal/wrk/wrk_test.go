package wrk

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const good = `Running 2s test @ http://127.0.0.1:1/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     2.07ms    1.13ms  34.04ms   87.32%
  Latency Distribution
     50%    1.91ms
     75%    2.50ms
     90%    3.11ms
     99%    1.20s
  62830 requests in 2.00s, 7.25MB read
Requests/sec:  31390.57
`

func TestParse(t *testing.T) {
	want := Result{Requests: 62830, PerSecond: 31390.57, P50: 1910 * time.Microsecond, P99: 1200 * time.Millisecond}
	got, err := parse(good)
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

func TestParseCountsFailures(t *testing.T) {
	got, err := parse(good + "  Socket errors: connect 1, read 2, write 3, timeout 4\n  Non-2xx or 3xx responses: 10\n")
	if err != nil || got.Failed != 20 {
		t.Errorf("Failed = %d, %v; want 20", got.Failed, err)
	}
}

func TestParseRefusesOtherOutput(t *testing.T) {
	if got, err := parse("unable to connect"); err == nil {
		t.Errorf("parse = %+v, want an error", got)
	}
}
