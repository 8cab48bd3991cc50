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
