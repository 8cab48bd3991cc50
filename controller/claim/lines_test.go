package claim

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// naiveLines is lines as one flat list and an order of turns.
type naiveLines struct {
	tickets []*ticket
	turns   []string
}

func (n *naiveLines) join(t *ticket) {
	if !slices.Contains(n.turns, t.tenant) {
		at := len(n.turns)
		if t.tries > 0 {
			at = 0
		}
		n.turns = slices.Insert(n.turns, at, t.tenant)
	}
	n.tickets = append(n.tickets, t)
	slices.SortFunc(n.tickets, func(a, b *ticket) int { return cmp.Compare(a.number, b.number) })
}

func (n *naiveLines) leave(t *ticket) {
	n.tickets = slices.DeleteFunc(n.tickets, func(o *ticket) bool { return o == t })
	if !slices.ContainsFunc(n.tickets, func(o *ticket) bool { return o.tenant == t.tenant }) {
		n.turns = slices.DeleteFunc(n.turns, func(o string) bool { return o == t.tenant })
	}
}

func (n *naiveLines) next(barred string) *ticket {
	for i, tenant := range n.turns {
		if tenant == barred {
			continue
		}
		at := slices.IndexFunc(n.tickets, func(o *ticket) bool { return o.tenant == tenant })
		t := n.tickets[at]
		n.turns = append(slices.Delete(slices.Clone(n.turns), i, i+1), tenant)
		n.leave(t)
		return t
	}
	return nil
}

// bothLines takes every step on lines and on naiveLines.
type bothLines struct {
	t      *testing.T
	rnd    *rand.Rand
	lines  lines
	naive  naiveLines
	served []*ticket // may join again
	number uint64
}

func (b *bothLines) join() {
	b.number++
	tk := &ticket{tenant: fmt.Sprint("t", b.rnd.IntN(4)), number: b.number}
	b.lines.join(tk)
	b.naive.join(tk)
}

func (b *bothLines) comeBack() {
	if len(b.served) == 0 {
		return
	}
	tk := b.served[0]
	b.served = b.served[1:]
	tk.tries++
	b.lines.join(tk)
	b.naive.join(tk)
}

func (b *bothLines) leave() {
	if len(b.naive.tickets) == 0 {
		return
	}
	tk := b.naive.tickets[b.rnd.IntN(len(b.naive.tickets))]
	b.lines.leave(tk)
	b.lines.leave(tk) // once more does nothing
	b.naive.leave(tk)
}

func (b *bothLines) serve() {
	b.t.Helper()
	barred := fmt.Sprint("t", b.rnd.IntN(8))
	got := b.lines.next(func(tk *ticket) error {
		if tk.tenant == barred {
			return errors.New("barred")
		}
		return nil
	})
	if want := b.naive.next(barred); got != want {
		b.t.Fatalf("next without %s = %+v, want %+v", barred, got, want)
	}
	if got != nil && b.rnd.IntN(2) == 0 {
		b.served = append(b.served, got)
	}
}

func TestLinesMatchAFlatList(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		b := &bothLines{t: t, rnd: rnd, lines: newLines()}
		for range 200 {
			[]func(){b.join, b.comeBack, b.leave, b.serve}[rnd.IntN(4)]()
			w, naive := &b.lines, &b.naive
			if w.waiting != len(naive.tickets) || w.turns.Len() != len(naive.turns) || len(w.tenants) != len(naive.turns) {
				t.Fatalf("%d callers of %d tenants wait, want %d of %d", w.waiting, w.turns.Len(), len(naive.tickets), len(naive.turns))
			}
		}
	}
}

// One tenant with many callers does not make the others wait for all of them.
func TestTenantsTakeTurns(t *testing.T) {
	w := newLines()
	for i := range 6 {
		w.join(&ticket{tenant: "many", number: uint64(i)})
	}
	w.join(&ticket{tenant: "one", number: 10})
	w.join(&ticket{tenant: "two", number: 11})
	w.join(&ticket{tenant: "two", number: 12})
	var order []string
	for w.waiting > 0 {
		tk := w.next(func(*ticket) error { return nil })
		order = append(order, fmt.Sprint(tk.tenant, tk.number))
	}
	want := []string{"many0", "one10", "two11", "many1", "two12", "many2", "many3", "many4", "many5"}
	if !slices.Equal(order, want) {
		t.Errorf("served %v, want %v", order, want)
	}
}
