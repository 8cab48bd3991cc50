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

func TestLinesMatchAFlatList(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	barredErr := errors.New("barred")
	for range 200 {
		w, naive := newLines(), naiveLines{}
		var out []*ticket // may join again
		number := uint64(0)
		for range 200 {
			switch rnd.IntN(4) {
			case 0:
				number++
				tk := &ticket{tenant: fmt.Sprint("t", rnd.IntN(4)), number: number}
				w.join(tk)
				naive.join(tk)
			case 1:
				if len(out) > 0 {
					tk := out[0]
					out = out[1:]
					tk.tries++
					w.join(tk)
					naive.join(tk)
				}
			case 2:
				if len(naive.tickets) > 0 {
					tk := naive.tickets[rnd.IntN(len(naive.tickets))]
					w.leave(tk)
					w.leave(tk) // once more does nothing
					naive.leave(tk)
				}
			case 3:
				barred := fmt.Sprint("t", rnd.IntN(8))
				got := w.next(func(tk *ticket) error {
					if tk.tenant == barred {
						return barredErr
					}
					return nil
				})
				if want := naive.next(barred); got != want {
					t.Fatalf("next without %s = %+v, want %+v", barred, got, want)
				}
				if got != nil && rnd.IntN(2) == 0 {
					out = append(out, got)
				}
			}
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
