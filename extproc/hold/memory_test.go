package hold

import (
	"runtime"
	"testing"
	"time"

	"skipper/extproc/header"
)

// mostPerWaiter bounds what the hall itself keeps for a waiting request, in
// bytes. Its stream with Envoy takes some 20 KiB beside it, mostly stacks of two
// goroutines, so that --hold-total bounds the memory.
const mostPerWaiter = 512

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestWaitersAreSmall(t *testing.T) {
	const n = 10_000
	h := New(Options{Asker: &asker{takes: time.Hour}, PerFunction: n, PerTenant: n, Total: n, Backoff: time.Second, MaxBackoff: time.Second})
	defer h.Close()
	f, deadline := function("t", false), time.Now().Add(time.Hour)
	tickets := make([]*Ticket, n)
	before := heap()
	for i := range tickets {
		tickets[i] = enterAt(t, h, f, deadline)
	}
	if per := (heap() - before) / n; per > mostPerWaiter {
		t.Errorf("%d bytes per waiter, want %d at most", per, mostPerWaiter)
	}
	for _, k := range tickets {
		_ = k.Leave() // there was no trouble
	}
	if h.Waiting() != 0 {
		t.Errorf("%d places are taken after all", h.Waiting())
	}
}

func enterAt(t *testing.T, h *Hall, f *header.Function, deadline time.Time) *Ticket {
	t.Helper()
	k, err := h.Enter(f, deadline)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
