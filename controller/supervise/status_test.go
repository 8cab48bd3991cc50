package supervise

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

func TestStatusHasTheNewestDecisionWhileResponsible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 2, 3, 1)
		w.beat(f, 9, nil)
		advance(2 * interval)
		all := w.Statuses()
		if len(all) != 1 || all[0].Key != fn.KeyOf(f) || all[0].Latest == nil {
			t.Fatalf("statuses %+v, want one with a decision", all)
		}
		if d := all[0].Latest; d.Unclamped != 9 || d.Desired != 3 || d.Why == "" || time.Since(d.At) > 2*interval {
			t.Errorf("decision %+v, want 9 within 3", d)
		}
		w.set(func() { w.foreign[fn.KeyOf(f)] = true })
		advance(2 * interval)
		if all := w.Statuses(); len(all) != 1 || all[0].Latest != nil {
			t.Errorf("statuses %+v, want none decided by a replica that is not responsible", all)
		}
	})
}

func TestScaleOnRequestIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := setup(t), function("t", 0, 3, 0)
		for _, n := range []int{2, 2, 1} {
			if _, err := w.Scale(t.Context(), f, n, "CPU"); err != nil {
				t.Fatal(err)
			}
		}
		const info = skipperpb.EventSeverity_EVENT_SEVERITY_INFO
		up, down := w.count(skipperpb.EventType_EVENT_TYPE_SCALE_UP, info), w.count(skipperpb.EventType_EVENT_TYPE_SCALE_DOWN, info)
		if up != 1 || down != 1 {
			t.Errorf("%d events of growth and %d of shrinkage, want one each: nothing changes in between", up, down)
		}
	})
}

// TestSaysWhatWasLastHeard: of a function that had heartbeats, when the last one
// was; of one that was found and never spoken of, since when nobody has.
func TestSaysWhatWasLastHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g := function("t", 0, 5, 0), function("u", 0, 5, 0)
		begin := time.Now()
		old := begin.Add(-time.Hour)
		w := setup(t, ready(f, "f-1", old), ready(g, "g-1", old))
		w.beatFor(time.Minute, f, 1, nil)
		last := time.Now().Add(-5 * time.Second) // beatFor waits after each
		advance(timeout + 2*interval)
		assigned := fmt.Sprintf(", the last assignment at %s; timeout 1m30s", old.UTC().Format(time.RFC3339))
		got := map[string]string{}
		for _, e := range w.logs.FilterMessage("scale").All() {
			got[fmt.Sprint(e.ContextMap()["function"])] = fmt.Sprint(e.ContextMap()["why"])
		}
		want := map[string]string{
			fn.KeyOf(f).String(): "the last heartbeat was at " + last.UTC().Format(time.RFC3339) + assigned,
			fn.KeyOf(g).String(): "no heartbeat since this controller began to listen for the function at " + begin.UTC().Format(time.RFC3339) + assigned,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("reasons (-want +got):\n%s", diff)
		}
	})
}
