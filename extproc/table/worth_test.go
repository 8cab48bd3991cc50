package table

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"skipper/extproc/header"
)

func TestWorth(t *testing.T) {
	start := time.Unix(1000, 0)
	ascending := []worth{
		{false, false, start}, {false, false, start.Add(1)}, {false, true, start},
		{true, false, start}, {true, false, start.Add(1)}, {true, true, start}, {true, true, start.Add(1)},
	}
	for i, a := range ascending {
		for j, b := range ascending {
			if got, want := a.compare(b), i-j; got < 0 != (want < 0) || got > 0 != (want > 0) {
				t.Errorf("%+v against %+v is %d", a, b, got)
			}
		}
	}
}

// A flood of functions neither fills the memory nor pushes out functions that
// have requests in progress, nor those that exist.
func TestTableIsBounded(t *testing.T) {
	start := time.Now()
	w := &wishes{}
	table := New(Options{Subscriber: w, Staleness: time.Hour, Confirm: time.Hour, Idle: time.Hour, Most: 1000, Now: start})
	one := []*header.Function{}
	for i := range 300 {
		h := function(fmt.Sprint("real", i))
		one = append(one, h)
		table.Push(list(h, 1), start) // not in the table yet: nothing happens
		table.Function(h)
		table.Push(list(h, 1, pod(1, 1)), start)
	}
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
	left := 0
	for _, h := range one {
		if f := table.find(h.Name); f != nil && len(f.View().Instances) == 1 {
			left++
		}
	}
	if left < len(one)*95/100 {
		t.Errorf("%d of %d functions with instances are left", left, len(one))
	}
	present := []string{}
	for i := range table.shards {
		for name := range *table.shards[i].view.Load() {
			present = append(present, name)
		}
	}
	slices.Sort(present)
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
