package retire

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestEndOfADrainIsToldWithItsOutcome(t *testing.T) {
	for outcome, row := range map[string]struct {
		inFlight InFlight
		want     string
	}{
		"empty":   {InFlight{0, true}, "POD_DRAINING POD_DELETED"},
		"timeout": {InFlight{1, true}, "POD_DRAINING DRAIN_TIMEOUT POD_DELETED"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, serving("a"))
			w.say("uid-a", row.inFlight)
			if err := w.Drain(t.Context(), w.pod(t, "a"), "scaled down"); err != nil {
				t.Fatal(err)
			}
			after(6 * time.Minute)
			w.mu.Lock()
			defer w.mu.Unlock()
			var told []string
			for _, e := range w.told {
				told = append(told, strings.TrimPrefix(e.GetType().String(), "EVENT_TYPE_"))
				if e.GetInstanceName() != "a" || e.GetInstanceUid() != "uid-a" || e.GetFunction().GetTenant() != "t1" || e.GetMessage() == "" {
					t.Errorf("event %v", e)
				}
			}
			if got := fmt.Sprint(strings.Join(told, " ")); got != row.want {
				t.Errorf("%s: told %s, want %s", outcome, got, row.want)
			}
			for _, one := range []string{"empty", "timeout"} {
				want := map[bool]float64{true: 1}[one == outcome]
				if got := testutil.ToFloat64(w.drains.WithLabelValues(one)); got != want {
					t.Errorf("%s: %v drains counted as %s, want %v", outcome, got, one, want)
				}
			}
		})
	}
}
