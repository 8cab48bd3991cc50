package forward

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skipper/controller/ring"
)

func TestDecide(t *testing.T) {
	const a, b, c = "10.0.0.1", "10.0.0.2", "10.0.0.3"
	full := ring.New(a, b, c)
	hashOf := func(owners ...string) uint64 { // of a function that they own in that order
		for hash := uint64(0); ; hash += 0x9e3779b97f4a7c15 { // all over the ring
			first, _ := full.Owner(hash)
			second, _ := full.OwnerWithout(hash, func(ip string) bool { return ip == first })
			if first == owners[0] && (len(owners) == 1 || second == owners[1]) {
				return hash
			}
		}
	}
	down := func(ips ...string) func(string) bool {
		return func(ip string) bool { return slices.Contains(ips, ip) }
	}
	tests := []struct {
		name string
		q    Question
		want Route
	}{
		{"its own", Question{Ring: full, Hash: hashOf(a), Serving: true}, Route{Local: true, Reason: Responsible}},
		{"another's", Question{Ring: full, Hash: hashOf(b), Serving: true}, Route{IP: b, Reason: ToOwner}},
		{"another's, before it serves itself", Question{Ring: full, Hash: hashOf(b)}, Route{IP: b, Reason: ToOwner}},
		{"forwarded", Question{Ring: full, Hash: hashOf(b), Forwarded: true, Serving: true}, Route{Local: true, Reason: Forwarded}},
		{"forwarded, with an empty ring", Question{Ring: ring.New(), Forwarded: true, Serving: true}, Route{Local: true, Reason: Forwarded}},
		{"forwarded too early", Question{Ring: full, Hash: hashOf(a), Forwarded: true}, Route{Reason: NotServingYet}},
		{"owner lost, another next", Question{Ring: full, Hash: hashOf(b, c), Serving: true, Down: down(b)}, Route{IP: c, Reason: ToNext}},
		{"owner lost, itself next", Question{Ring: full, Hash: hashOf(b, a), Serving: true, Down: down(b)}, Route{Local: true, Reason: InPlaceOf}},
		{"all others lost", Question{Ring: full, Hash: hashOf(b, c), Serving: true, Down: down(b, c)}, Route{Local: true, Reason: InPlaceOf}},
		{"all lost, itself not on the ring", Question{Ring: ring.New(b), Serving: true, Down: down(b)}, Route{Local: true, Reason: NobodyElse}},
		{"all lost, itself not serving", Question{Ring: full, Hash: hashOf(b, c), Down: down(b, c)}, Route{Reason: NobodyAtAll}},
		{"owner itself, not serving", Question{Ring: full, Hash: hashOf(a, c)}, Route{IP: c, Reason: ToNext}},
		{"empty ring", Question{Ring: ring.New()}, Route{Reason: NobodyAtAll}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.q.Self = a
			if d := cmp.Diff(tt.want, Decide(tt.q)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// spread plays a batch from replica to replica until nobody sends any more. It
// returns how often each replica was sent it, the first one by the router.
func spread(views map[string][]string, first string) map[string]int {
	type message struct {
		to  string
		has []string
	}
	got := map[string]int{}
	for queue := []message{{first, nil}}; len(queue) > 0; queue = queue[1:] {
		m := queue[0]
		got[m.to]++
		targets, next := Spread(views[m.to], m.to, m.has)
		for _, to := range targets {
			queue = append(queue, message{to, next})
		}
	}
	return got
}

// Whoever gets a batch first, and however many replicas there are: each gets it
// once.
func TestSpreadReachesEachMemberOnce(t *testing.T) {
	for n := 1; n <= 12; n++ {
		views := map[string][]string{}
		var members []string
		for i := range n {
			members = append(members, fmt.Sprint("10.0.0.", i))
		}
		for _, m := range members {
			views[m] = members
		}
		for _, first := range members {
			for ip, times := range spread(views, first) {
				if times != 1 {
					t.Errorf("%d members, first %s: %s got it %d times", n, first, ip, times)
				}
			}
		}
	}
}

// Replicas that disagree about the ring still end, nobody is sent a batch back,
// and whoever a receiver knows of gets it.
func TestSpreadEndsWhenRingsDisagree(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		views := map[string][]string{}
		for i := range 6 {
			self := fmt.Sprint("10.0.0.", i)
			views[self] = []string{}
			for j := range 6 {
				if rnd.IntN(3) > 0 {
					views[self] = append(views[self], fmt.Sprint("10.0.0.", j))
				}
			}
		}
		first := "10.0.0.0"
		got := spread(views, first)
		if got[first] != 1 {
			t.Fatalf("views %v: the first got its own batch back", views)
		}
		for ip := range got {
			for _, known := range views[ip] {
				if got[known] == 0 {
					t.Fatalf("views %v: %s never got the batch, though %s knows it: only %v", views, known, ip, slices.Sorted(maps.Keys(got)))
				}
			}
		}
	}
}

func TestSpreadDoesNotWriteIntoTheMessage(t *testing.T) {
	list := append(make([]string, 0, 8), "10.0.0.1")
	Spread([]string{"10.0.0.3"}, "10.0.0.2", list)
	if d := cmp.Diff([]string{"10.0.0.1", "", ""}, list[:3]); d != "" {
		t.Errorf("forwarded_for was changed:\n%s", d)
	}
}
