package publish

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"skipper/controller/pool"
	"skipper/proto/fn"
)

// follower is a Progress that refuses addresses and writes down what it hears.
type follower struct {
	mu      sync.Mutex
	refused map[string]bool // addresses
	seen    uint64
	log     []string
}

func (f *follower) Observe(e pool.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen++
}

func (f *follower) Mark() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}

func (f *follower) Published(mark, _ uint64, functions map[fn.Key]struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := []string{}
	for key := range functions {
		names = append(names, key.String())
	}
	f.log = append(f.log, fmt.Sprint(mark, " ", names))
}

func (f *follower) Allowed(p *pool.Pod) (bool, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.refused[p.Addr()], "refused"
}

func (f *follower) set(refused map[string]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = refused
}

func TestFreePodAtAnAddressInUseIsPublishedOnceItIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, f := pool.NewView(), &follower{}
		f.set(map[string]bool{"10.244.0.2:8080": true})
		v.Apply(idle("a", 1, 1))
		v.Apply(idle("b", 2, 2))
		r, p := startWith(t, v, f)
		if diff := cmp.Diff([]string{"+a@10.244.0.1:8080", "open"}, r.take()); diff != "" {
			t.Errorf("first world (-want +got):\n%s", diff)
		}
		p.Reconsider("a", "b", "unknown")
		settle()
		if got := r.take(); len(got) != 0 {
			t.Errorf("published %v while the address is refused", got)
		}
		f.set(nil)
		p.Reconsider("a", "b", "unknown")
		settle()
		if diff := cmp.Diff([]string{"+b@10.244.0.2:8080"}, r.take()); diff != "" {
			t.Errorf("freed (-want +got):\n%s", diff)
		}
	})
}

func TestClaimedPodIsPublishedWhateverItsAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, f := pool.NewView(), &follower{refused: map[string]bool{"10.244.0.1:8080": true}}
		v.Apply(idle("a", 1, 1))
		r, _ := startWith(t, v, f)
		r.take()
		v.Apply(instance("a", 1, 2))
		settle()
		if got := r.take(); len(got) != 1 || !slices.Contains([]string{"+a@10.244.0.1:8080 prod/echo/t=[a]/2"}, got[0]) {
			t.Errorf("published %v", got)
		}
	})
}

func TestRemovedPodIsNotBroughtBackByALookAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, f := pool.NewView(), &follower{refused: map[string]bool{"10.244.0.1:8080": true}}
		v.Apply(idle("a", 1, 1))
		r, p := startWith(t, v, f)
		r.take()
		v.Remove("prod", "a", 2)
		settle()
		f.set(nil)
		p.Reconsider("a")
		settle()
		if got := r.take(); len(got) != 0 {
			t.Errorf("published %v", got)
		}
	})
}

func TestListsAreBuiltAfterTheirMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, f := pool.NewView(), &follower{}
		r, p := startWith(t, v, f)
		v.Apply(instance("a", 1, 1))
		settle()
		v.Remove("prod", "a", 2)
		settle()
		p.Republish(fn.KeyOf(function))
		settle()
		want := []string{"1 [prod/echo/t]", "2 [prod/echo/t]", "2 [prod/echo/t]"}
		if diff := cmp.Diff(want, f.log); diff != "" {
			t.Errorf("heard (-want +got):\n%s", diff)
		}
		if got := r.take(); got[len(got)-1] != "prod/echo/t=[]/2" {
			t.Errorf("the last list is %v", got)
		}
	})
}

// A list says that an instance has ended even where it never had it: somebody
// may have heard of the instance from another replica.
func TestListsOfEndsAreSentAgain(t *testing.T) {
	draining := func(version uint64) pool.Pod {
		p := instance("a", 1, version)
		p.Draining, p.DrainingAt = true, p.AssignedAt
		return p
	}
	for _, row := range []struct {
		name   string
		change func(v *pool.View, p *Publisher)
		want   int
	}{
		{"ready", func(v *pool.View, _ *Publisher) { v.Apply(instance("a", 1, 2)) }, 0},
		{"drains, seen as ready", func(v *pool.View, _ *Publisher) {
			v.Apply(instance("a", 1, 2))
			settle()
			v.Apply(draining(3))
		}, 1},
		{"drains, never seen as ready", func(v *pool.View, _ *Publisher) { v.Apply(draining(3)) }, 1},
		{"drains here first, and then in the watch", func(v *pool.View, _ *Publisher) {
			v.Apply(instance("a", 1, 2))
			v.ExpectDraining("a", draining(3).DrainingAt)
			settle()
			v.Apply(draining(3))
		}, 2},
		{"vanishes", func(v *pool.View, _ *Publisher) {
			v.Apply(instance("a", 1, 2))
			settle()
			v.Remove("prod", "a", 3)
		}, 1},
		{"vanishes after its drain", func(v *pool.View, _ *Publisher) {
			v.Apply(draining(3))
			settle()
			v.Remove("prod", "a", 4)
		}, 1},
		{"on request", func(_ *pool.View, p *Publisher) { p.Republish(fn.KeyOf(function)) }, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			v := pool.NewView()
			r, p := startWith(t, v, &follower{})
			row.change(v, p)
			settle()
			if r.take(); r.again != row.want {
				t.Errorf("%s: %d lists are sent again, want %d", row.name, r.again, row.want)
			}
		})
	}
}
