package table

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"skipper/proto/fn"
	"skipper/xds"

	"skipper/extproc/header"
)

func TestWorth(t *testing.T) {
	start := time.Unix(1000, 0)
	ascending := []worth{
		{false, false, start},
		{false, false, start.Add(1)},
		{false, true, start},
		{true, false, start},
		{true, false, start.Add(1)},
		{true, true, start},
		{true, true, start.Add(1)},
	}
	for i, a := range ascending {
		for j, b := range ascending {
			if got, want := a.compare(b), i-j; got < 0 != (want < 0) || got > 0 != (want > 0) {
				t.Errorf("%+v against %+v is %d", a, b, got)
			}
		}
	}
}

// settled puts n functions of one instance each into the table.
func settled(table *Table, n int, now time.Time) (out []*header.Function) {
	for i := range n {
		h := function(fmt.Sprint("real", i))
		out = append(out, h)
		table.Push(list(h, 1), now) // not in the table yet: nothing happens
		table.Function(h)
		table.Push(list(h, 1, pod(1, 1)), now)
	}
	return out
}

// withInstances counts those that the table still knows one instance of.
func withInstances(table *Table, all []*header.Function) (n int) {
	for _, h := range all {
		if f := table.find(h.Name); f != nil && len(f.View().Instances) == 1 {
			n++
		}
	}
	return n
}

// namesIn are those of all functions in the table, sorted.
func namesIn(table *Table) (out []string) {
	for i := range table.shards {
		for name := range *table.shards[i].view.Load() {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// A flood of functions neither fills the memory nor pushes out functions that
// have requests in progress, nor those that exist.
func TestTableIsBounded(t *testing.T) {
	start := time.Now()
	w := &wishes{}
	table := New(Options{Subscriber: w, Staleness: time.Hour, Confirm: time.Hour, Idle: time.Hour, Most: 1000, Now: start})
	one := settled(table, 300, start)
	busy := function("busy")
	lease, _ := table.Function(busy).hold(newInstance(pod(9, 1), &counter{}))
	for i := range 5000 {
		table.Function(function(fmt.Sprint("flood", i)))
	}
	if n := table.Size(); n < 900 || n > 1000+shardCount {
		t.Errorf("%d functions, want about 1000", n)
	}
	if table.find(busy.Name) == nil {
		t.Error("a function with a request in progress was pushed out")
	}
	if left := withInstances(table, one); left < len(one)*95/100 {
		t.Errorf("%d of %d functions with instances are left", left, len(one))
	}
	present := namesIn(table)
	slices.Sort(w.names)
	if !slices.Equal(present, w.names) || len(present) != table.Size() {
		t.Errorf("%d functions, %d subscriptions, size %d: want the same ones", len(present), len(w.names), table.Size())
	}
	lease.Release()
}

func TestFunctionThatMadeRoomIsNotRemovedTwice(t *testing.T) {
	start := time.Now()
	table := New(Options{Subscriber: &wishes{}, Idle: time.Minute, Most: 1, Now: start})
	f := table.Function(function("t"))
	s := &table.shards[function("t").Hash%shardCount]
	s.mu.Lock()
	m := map[string]*Function{function("t").Name: f}
	table.makeRoom(m)
	s.view.Store(&m)
	s.mu.Unlock()
	table.remove(s, function("t").Name)
	if next := table.Function(function("t")); table.Size() != 1 || next == f || !f.Evicted() {
		t.Errorf("size %d, the same again: %v", table.Size(), next == f)
	}
	table.remove(s, function("t").Name) // for the former one, late
	if table.Size() != 1 {
		t.Error("another function of that name was removed")
	}
}

// totals are the requests in progress by function, once for each time it is named.
func totals(all []Usage) map[string][]uint32 {
	out := map[string][]uint32{}
	for _, u := range all {
		name := xds.InstancesName(fn.KeyOf(u.Function))
		out[name] = append(out[name], u.Total)
	}
	return out
}

// pushOut adds others until h has made room.
func pushOut(table *Table, h *header.Function) {
	for i := 0; table.find(h.Name) != nil; i++ {
		table.Function(function(fmt.Sprint("flood", h.Name, i)))
	}
}

// Whoever makes room is named once more, without requests, if the last word on it
// was of some; one that has come back is named once, as it is.
func TestFunctionThatMadeRoomLeavesNoCountBehind(t *testing.T) {
	start := time.Now()
	for _, row := range []struct {
		back  bool
		first []uint32
		then  int
	}{{false, []uint32{0}, 0}, {true, []uint32{1}, 1}} {
		table := New(Options{Staleness: time.Hour, Confirm: time.Hour, Idle: time.Hour, Most: 1, Now: start})
		busy, calm := function("busy"), function("calm")
		lease, _ := table.Function(busy).hold(newInstance(pod(1, 1), &counter{}))
		table.Usage(start)
		lease.Release()
		table.Function(calm)
		pushOut(table, busy)
		pushOut(table, calm)
		if row.back {
			lease, _ = table.Function(busy).hold(newInstance(pod(2, 1), &counter{}))
		}
		if got := totals(table.Usage(start)); !slices.Equal(got[busy.Name], row.first) || got[calm.Name] != nil {
			t.Errorf("back: %v: busy is said to have %v, want %v; calm %v, want nothing", row.back, got[busy.Name], row.first, got[calm.Name])
		}
		if got := totals(table.Usage(start)); len(got[busy.Name]) != row.then {
			t.Errorf("back: %v: busy is named %d times later, want %d", row.back, len(got[busy.Name]), row.then)
		}
		lease.Release()
	}
}
