package stream

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
	"testing"
	"time"

	"skipper/extproc/pass"
	"skipper/extproc/table"
)

// leased is a request that was sent to the pod with the given number.
func leased(t *testing.T, r *rig, n int) (*request, func(n int) table.Lease) {
	t.Helper()
	f := headerOf(function("t"))
	hold := func(n int) table.Lease {
		i := r.table.Function(f).Learn(instance(f.Spec, n, uint64(n)), time.Now())
		return r.table.Hold(f, i)
	}
	return &request{function: f, start: time.Now(), patience: time.Minute, lease: hold(n)}, hold
}

func TestRequestThatIsOverTakesNoLease(t *testing.T) {
	r := newCore(t, &fakeController{answer: always})
	q, hold := leased(t, r, 1)
	q.begin(pass.Failed)
	if e := q.end(); e.lease.Instance == nil || !e.sent.IsZero() || e.used != 1 {
		t.Errorf("it ended with %+v", e)
	}
	l := hold(2)
	if back, ok := q.move(grant{lease: l}, time.Now()); ok || back != l {
		t.Errorf("moved %t, back comes %+v", ok, back)
	}
	if _, ok := q.begin(pass.Failed); ok {
		t.Error("one more pass began")
	}
	if _, ok := q.stay(); ok {
		t.Error("the last pass was tried again")
	}
	r.hall.Close()
}

func TestInstanceIsBlamedOncePerAnswer(t *testing.T) {
	r := newCore(t, &fakeController{answer: always})
	q, hold := leased(t, r, 1)
	for n, want := range []bool{true, false, false} {
		if notes, ok := q.begin(pass.Failed); !ok || (notes.blamed != nil) != want || len(notes.tried) != 1 {
			t.Errorf("time %d: blamed %v, tried %d", n, notes.blamed, len(notes.tried))
		}
	}
	if _, ok := q.move(grant{lease: hold(2)}, time.Now()); !ok {
		t.Fatal("not moved")
	}
	if notes, _ := q.begin(pass.Failed); notes.blamed == nil || len(notes.tried) != 2 || notes.used != 2 {
		t.Errorf("after another answer: %+v", notes)
	}
	r.hall.Close()
}

func TestRegisterFindsWhatIsInProgress(t *testing.T) {
	var g register
	var all []*request
	for range 3 * registerBuckets {
		q := &request{}
		var raw [16]byte
		_, _ = rand.Read(raw[:])
		hex.Encode(q.id[:], raw[:])
		g.add(q)
		all = append(all, q)
	}
	var removing sync.WaitGroup
	for half := range 2 {
		removing.Go(func() {
			for n := half; n < len(all); n += 4 {
				g.remove(all[n])
				g.remove(all[n]) // once more does nothing
			}
		})
	}
	removing.Wait()
	for n, q := range all {
		if got := g.find(q.id[:]); (got == q) != (n%4 > 1) || got != nil && got != q {
			t.Fatalf("request %d: found %p, want %p to be found: %t", n, got, q, n%4 > 1)
		}
	}
}
