package ring

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJoined(t *testing.T) {
	const self = "10.0.0.2"
	ready := func(ip string) Replica { return Replica{IP: ip, Ready: true} }
	leaving := func(ip string) Replica { return Replica{IP: ip, Ready: true, Terminating: true} }
	tests := []struct {
		name    string
		serving bool
		seen    []Replica
		want    []string
	}{
		{"nothing seen, not serving", false, nil, nil},
		{"serves before the cluster calls it ready", true, []Replica{{IP: self}}, []string{self}},
		{"serves before it is seen at all", true, nil, []string{self}},
		{"called ready by a probe of its former life", false, []Replica{ready(self)}, nil},
		{"others that are ready", true, []Replica{ready("10.0.0.9"), ready(self), {IP: "10.0.0.3"}}, []string{self, "10.0.0.9"}},
		{"others that are about to stop", true, []Replica{leaving("10.0.0.1"), ready("10.0.0.3"), ready(self)}, []string{self, "10.0.0.3"}},
		{"about to stop itself", true, []Replica{ready("10.0.0.1"), leaving(self)}, []string{"10.0.0.1"}},
		{"about to stop, with nobody else", true, []Replica{leaving("10.0.0.1"), leaving(self)}, []string{self}},
		{"the same address twice", true, []Replica{ready("10.0.0.1"), leaving("10.0.0.1"), ready("10.0.0.1")}, []string{"10.0.0.1", self}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, Joined(self, tt.serving, tt.seen)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// The next owner is the one that a ring without the lost members would have.
func TestOwnerWithoutMatchesASmallerRing(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for n := range 8 {
		members := ips(n)
		r := New(members...)
		for range 100 {
			hash := rnd.Uint64()
			var gone []string
			for _, m := range members {
				if rnd.IntN(2) == 0 {
					gone = append(gone, m)
				}
			}
			isGone := func(ip string) bool { return slices.Contains(gone, ip) }
			want, wantOK := New(slices.DeleteFunc(slices.Clone(members), isGone)...).Owner(hash)
			if got, ok := r.OwnerWithout(hash, isGone); got != want || ok != wantOK {
				t.Fatalf("OwnerWithout(%#x) of %v without %v = %q, %v, want %q, %v", hash, members, gone, got, ok, want, wantOK)
			}
		}
	}
}
