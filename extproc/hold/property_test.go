package hold

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"skipper/extproc/header"
	"skipper/extproc/table"
)

// desk is a controller that answers when it is told to.
type desk struct {
	mu   sync.Mutex
	open []*question // guarded by mu
}

type question struct {
	about  string
	answer chan Answer
}

func about(f *header.Function, exclude []string) string { return fmt.Sprint(f.Name, exclude) }

func (d *desk) Ask(ctx context.Context, f *header.Function, exclude []string) Answer {
	q := &question{about(f, exclude), make(chan Answer)}
	d.mu.Lock()
	d.open = append(d.open, q)
	d.mu.Unlock()
	select {
	case a := <-q.answer:
		return a
	case <-ctx.Done():
		d.mu.Lock()
		defer d.mu.Unlock()
		d.open = slices.DeleteFunc(d.open, func(other *question) bool { return other == q })
		return Answer{Err: ctx.Err()}
	}
}

// take removes a question for it to be answered; nil if nothing is asked.
func (d *desk) take(r *rand.Rand) *question {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.open) == 0 {
		return nil
	}
	i := r.IntN(len(d.open))
	q := d.open[i]
	d.open = slices.Delete(d.open, i, i+1)
	return q
}

func (d *desk) questions() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []string{}
	for _, q := range d.open {
		out = append(out, q.about)
	}
	slices.Sort(out)
	return out
}

// guest is a waiting request, as the naive hall knows it.
type guest struct {
	ticket   *Ticket
	function *header.Function
	about    string
	served   bool // a result was delivered
	received bool
	result   Result
	trouble  error
}

// naive is a hall that looks at everybody, each time.
type naive struct {
	guests  []*guest
	orphans []string
	opts    Options
}

// full says which bound a further request meets.
func (n *naive) full(f *header.Function) string {
	function, tenant := 0, 0
	for _, g := range n.guests {
		if g.function.Name == f.Name {
			function++
		}
		if g.function.Key.Tenant == f.Key.Tenant {
			tenant++
		}
	}
	switch {
	case function >= n.opts.PerFunction:
		return "function"
	case tenant >= n.opts.PerTenant:
		return "tenant"
	case len(n.guests) >= n.opts.Total:
		return "extproc"
	}
	return ""
}

// questions that must be under way: one for all who can use the same answer, and
// one for each who waits for a oneshot.
func (n *naive) questions() []string {
	out := []string{}
	for _, g := range n.guests {
		if !g.served && (g.function.Key.Oneshot || !slices.Contains(out, g.about)) {
			out = append(out, g.about)
		}
	}
	slices.Sort(out)
	return out
}

// troubleOf is what those who stand in a line already know of.
func (n *naive) troubleOf(about string) error {
	for _, g := range n.guests {
		if g.about == about && !g.served {
			return g.trouble
		}
	}
	return nil
}

// deliver gives a result to those who wait for it.
func (n *naive) deliver(to func(*guest) bool, r Result) {
	for _, g := range n.guests {
		if !g.served && to(g) {
			g.served, g.result = true, r
			if r.Err != nil {
				g.trouble = r.Err
			}
		}
	}
}

func (n *naive) leave(g *guest) {
	n.guests = slices.DeleteFunc(n.guests, func(other *guest) bool { return other == g })
	if g.served && !g.received && g.function.Key.Oneshot && g.result.Instance != nil {
		n.orphans = append(n.orphans, g.result.Instance.UID)
	}
}

// both are the hall and the naive one, beside each other.
type both struct {
	t       *testing.T
	r       *rand.Rand
	hall    *Hall
	desk    *desk
	naive   *naive
	orphans []string
	served  int
	entered int
}

var errAway, errNo = errors.New("away"), errors.New("no")

func (b *both) enter() {
	f := function(fmt.Sprint("t", b.r.IntN(3)), b.r.IntN(3) == 0)
	if b.r.IntN(3) == 0 {
		spec := f.Spec
		spec.Deployment = "other"
		f = header.Of(spec)
	}
	var exclude []string
	switch {
	case f.Key.Oneshot: // so that the questions can be told apart
		b.entered++
		exclude = []string{fmt.Sprint(b.entered)}
	case b.r.IntN(4) == 0:
		exclude = []string{"x"}
	}
	want := b.naive.full(f)
	ticket, err := b.hall.Enter(f, time.Now().Add(24*time.Hour), exclude...)
	got := ""
	if full := (*FullError)(nil); errors.As(err, &full) {
		got = full.Of
	}
	if got != want {
		b.t.Fatalf("full of %q, want %q", got, want)
	}
	if err == nil {
		g := &guest{ticket: ticket, function: f, about: about(f, exclude)}
		g.trouble = b.naive.troubleOf(g.about)
		b.naive.guests = append(b.naive.guests, g)
	}
}

func (b *both) leave() {
	if len(b.naive.guests) == 0 {
		return
	}
	g := b.naive.guests[b.r.IntN(len(b.naive.guests))]
	b.naive.leave(g)
	if err := g.ticket.Leave(); !errors.Is(err, g.trouble) {
		b.t.Fatalf("the trouble was %v, want %v", err, g.trouble)
	}
}

func (b *both) answer() {
	q := b.desk.take(b.r)
	if q == nil {
		return
	}
	b.served++
	a := []Answer{{Instance: &table.Instance{UID: fmt.Sprint(b.served)}}, {Err: errNo, Final: true}, {Err: errAway}}[b.r.IntN(3)]
	asked := func(g *guest) bool { return g.about == q.about }
	if a.Err == nil || a.Final {
		b.naive.deliver(asked, Result{Instance: a.Instance, Err: a.Err})
	} else {
		for _, g := range b.naive.guests {
			if !g.served && asked(g) {
				g.trouble = a.Err
			}
		}
	}
	q.answer <- a
}

func (b *both) wake() {
	f := function(fmt.Sprint("t", b.r.IntN(3)), false)
	b.naive.deliver(func(g *guest) bool { return g.function.Name == f.Name }, Result{})
	b.hall.Wake(f.Name)
}

// settle lets pauses pass, and has some who were served see it.
func (b *both) settle() {
	<-time.NewTimer(time.Minute).C // virtual: longer than any pause
	synctest.Wait()
	for _, g := range b.naive.guests {
		if g.received || b.r.IntN(2) == 0 {
			continue
		}
		select {
		case got := <-g.ticket.Result:
			if !g.served || got != g.result {
				b.t.Fatalf("%s got %+v, want %+v (served: %v)", g.about, got, g.result, g.served)
			}
			g.received = true
		default:
			if g.served {
				b.t.Fatalf("%s got nothing, want %+v", g.about, g.result)
			}
		}
	}
}

func (b *both) compare() {
	if d := cmp.Diff(b.naive.questions(), b.desk.questions()); d != "" {
		b.t.Fatalf("questions (-want +got):\n%s", d)
	}
	if got := b.hall.Waiting(); got != len(b.naive.guests) {
		b.t.Fatalf("%d wait, want %d", got, len(b.naive.guests))
	}
	slices.Sort(b.orphans)
	slices.Sort(b.naive.orphans)
	if d := cmp.Diff(b.naive.orphans, b.orphans); d != "" {
		b.t.Fatalf("orphans (-want +got):\n%s", d)
	}
}

// Whatever happens in whatever order, the hall does what one does that looks at
// everybody each time: who may enter, what is asked, who gets what, and what is
// left behind.
func TestHallAgreesWithANaiveOne(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			b := &both{t: t, r: rand.New(rand.NewPCG(seed, 1)), desk: &desk{}}
			o := Options{
				Asker: b.desk, PerFunction: 3, PerTenant: 5, Total: 8, Attempts: 3, Backoff: 100 * time.Millisecond, MaxBackoff: time.Second,
				Orphan: func(i *table.Instance) { b.orphans = append(b.orphans, i.UID) },
			}
			b.hall, b.naive = New(o), &naive{opts: o}
			defer b.hall.Close()
			for range 60 {
				[]func(){b.enter, b.enter, b.enter, b.leave, b.answer, b.wake}[b.r.IntN(6)]()
				b.settle()
				b.compare()
			}
			for len(b.naive.guests) > 0 {
				b.leave()
			}
			synctest.Wait()
			b.compare()
			if len(b.hall.tenants)+len(b.hall.functions)+len(b.hall.lines) != 0 {
				t.Errorf("left behind: %v, %v, %v", b.hall.tenants, b.hall.functions, b.hall.lines)
			}
		})
	}
}
