package ring

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skipper/proto/fn"
)

func ips(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("10.244.%d.%d", i%3, 7+i)
	}
	return out
}

// naiveOwner looks at every point of every member.
func naiveOwner(members []string, hash uint64) (owner string, ok bool) {
	key := uint32(hash>>32) ^ uint32(hash)
	var best uint64
	for _, ip := range members {
		for i := range VirtualNodes {
			h := uint32(2166136261)
			for _, c := range append([]byte(ip+":"), byte(i>>8), byte(i)) {
				h = (h ^ uint32(c)) * 16777619
			}
			h ^= h >> 16
			h *= 0x85ebca6b
			h ^= h >> 13
			h *= 0xc2b2ae35
			h ^= h >> 16
			distance := uint64(h - key) // wraps round by itself
			if !ok || distance < best || distance == best && netip.MustParseAddr(ip).Less(netip.MustParseAddr(owner)) {
				best, owner, ok = distance, ip, true
			}
		}
	}
	return owner, ok
}

func TestOwnerMatchesNaiveSearch(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range 12 {
		members := ips(n)
		r := New(members...)
		for range 50 {
			hash := rnd.Uint64()
			want, wantOK := naiveOwner(members, hash)
			if got, ok := r.Owner(hash); got != want || ok != wantOK {
				t.Fatalf("Owner(%#x) of %d members = %q, %v, want %q, %v", hash, n, got, ok, want, wantOK)
			}
		}
	}
}

func TestOwnerAtAndRoundThePoints(t *testing.T) {
	r := New("10.0.0.1", "10.0.0.2")
	first, last := r.points[0], r.points[len(r.points)-1]
	tests := []struct {
		name string
		key  uint32
		want string
	}{
		{"at a point", first.at, r.members[first.member]},
		{"just before a point", first.at - 1, r.members[first.member]},
		{"after the last point wraps", last.at + 1, r.members[first.member]},
		{"at the last point", last.at, r.members[last.member]},
	}
	for _, tt := range tests {
		if got, _ := r.Owner(uint64(tt.key)); got != tt.want {
			t.Errorf("%s: Owner(%#x) = %q, want %q", tt.name, tt.key, got, tt.want)
		}
	}
}

func TestEqualPointsBelongToTheLowerIP(t *testing.T) {
	r := &Ring{members: []string{"10.0.0.1", "10.0.0.2"}, points: []point{{5, 0}, {5, 1}, {9, 1}}}
	if got, _ := r.Owner(5); got != "10.0.0.1" {
		t.Errorf("Owner(5) = %q, want 10.0.0.1", got)
	}
	a, b := collide(t)
	lower := a
	if netip.MustParseAddr(b).Less(netip.MustParseAddr(a)) {
		lower = b
	}
	for _, order := range [][]string{{a, b}, {b, a}} {
		r := New(order...)
		at := sharedPoint(t, r)
		if got, _ := r.Owner(uint64(at)); got != lower {
			t.Errorf("New(%v).Owner(%#x) = %q, want %q", order, at, got, lower)
		}
	}
}

// collide finds two addresses that share a point.
func collide(t *testing.T) (string, string) {
	t.Helper()
	seen := map[uint32]string{}
	for i := range 2048 {
		ip := fmt.Sprintf("10.1.%d.%d", i/256, i%256)
		for v := range VirtualNodes {
			p := pointOf(ip, uint16(v))
			if other, ok := seen[p]; ok && other != ip {
				return other, ip
			}
			seen[p] = ip
		}
	}
	t.Fatal("no two of 2048 addresses share a point")
	return "", ""
}

func TestLowerIPIsTheLowerNumber(t *testing.T) {
	got := New("10.0.0.10", "10.0.0.9", "fd00::1", "10.0.0.9").Members()
	if diff := cmp.Diff([]string{"10.0.0.9", "10.0.0.10", "fd00::1"}, got); diff != "" {
		t.Errorf("members out of order:\n%s", diff)
	}
}

func sharedPoint(t *testing.T, r *Ring) uint32 {
	t.Helper()
	for i := 1; i < len(r.points); i++ {
		if r.points[i].at == r.points[i-1].at && r.points[i].member != r.points[i-1].member {
			return r.points[i].at
		}
	}
	t.Fatal("no shared point")
	return 0
}

func TestEmptyRingOwnsNothing(t *testing.T) {
	for _, r := range []*Ring{New(), New(""), {}} {
		if ip, ok := r.Owner(7); ip != "" || ok {
			t.Errorf("Owner on %v = %q, %v, want none", r, ip, ok)
		}
	}
}

func TestOrderAndRepetitionDoNotMatter(t *testing.T) {
	members := ips(7)
	want := New(members...)
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 5 {
		shuffled := append(slices.Clone(members), members[2], "")
		rnd.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if diff := cmp.Diff(want, New(shuffled...), cmp.AllowUnexported(Ring{}, point{})); diff != "" {
			t.Fatalf("ring depends on the order of %v:\n%s", shuffled, diff)
		}
	}
}

// shares is the part of the key space that each member owns, times its number.
func shares(r *Ring) map[string]float64 {
	out := map[string]float64{}
	prev := r.points[len(r.points)-1].at
	for _, p := range r.points {
		out[r.members[p.member]] += float64(p.at-prev) / (1 << 32) * float64(len(r.members))
		prev = p.at
	}
	return out
}

func TestBalanceWithin15Percent(t *testing.T) {
	for n := 3; n <= 20; n++ {
		for ip, share := range shares(New(ips(n)...)) {
			if share < 0.85 || share > 1.15 {
				t.Errorf("%d members: %s owns %.3f of an even share", n, ip, share)
			}
		}
	}
}

func TestOnlyTheNewMembersFunctionsMove(t *testing.T) {
	members := ips(8)
	newcomer := members[5]
	before := New(slices.Delete(slices.Clone(members), 5, 6)...)
	after := New(members...)
	moved := 0
	for i := range 20000 {
		hash := fn.Key{Namespace: "prod", Deployment: "echo", Tenant: fmt.Sprint(i)}.Hash()
		was, _ := before.Owner(hash)
		is, _ := after.Owner(hash)
		if was != is && is != newcomer {
			t.Fatalf("function %d moved from %s to %s when %s joined", i, was, is, newcomer)
		}
		if was != is {
			moved++
		}
	}
	if moved < 20000/8*8/10 || moved > 20000/8*12/10 {
		t.Errorf("%d of 20000 functions moved, want about an eighth", moved)
	}
}

func TestWorkedExamples(t *testing.T) {
	points := []struct {
		ip   string
		i    uint16
		want uint32
	}{
		{"10.0.0.1", 0, 0x7a8b3eb2},
		{"10.0.0.1", 258, 0x86d1ef8d},
		{"10.0.0.2", 1023, 0x06e1b856},
		{"fd00::1", 1, 0x8261634f},
	}
	for _, p := range points {
		if got := pointOf(p.ip, p.i); got != p.want {
			t.Errorf("pointOf(%s, %d) = %#08x, want %#08x", p.ip, p.i, got, p.want)
		}
	}
	if got := fold(0x0123456789abcdef); got != 0x88888888 {
		t.Errorf("fold = %#08x, want 0x88888888", got)
	}
	owners := []struct{ tenant, want string }{
		{"tenant-1", "10.0.0.2"}, {"tenant-2", "10.0.0.3"}, {"tenant-7", "10.0.0.2"}, {"tenant-8", "10.0.0.2"},
	}
	r := New("10.0.0.1", "10.0.0.2", "10.0.0.3")
	for _, o := range owners {
		k := fn.Key{Namespace: "prod", Deployment: "echo-server", Tenant: o.tenant}
		if got, _ := r.Owner(k.Hash()); got != o.want {
			t.Errorf("owner of %s = %s, want %s", k, got, o.want)
		}
	}
}
