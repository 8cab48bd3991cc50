// Package ring decides which controller replica owns a function: consistent
// hashing exactly as contract section 4 lays it down, so that any replica, of
// any version, comes to the same answer from the same members.
//
// Ring is an immutable value, Members its current holder. Neither knows where
// members come from.
package ring

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
)

// VirtualNodes is the number of points of each member (contract section 4).
const VirtualNodes = 1024

// Ring maps hashes to members. It is immutable and safe for concurrent use;
// the zero value, and that of New without members, is an empty ring.
type Ring struct {
	members []string
	points  []point
}

type point struct {
	at     uint32
	member uint16 // index into members
}

// New makes the ring of the given IPs, in any order; repeated and empty ones
// count once and not at all.
func New(ips ...string) *Ring {
	members := slices.Clone(ips)
	slices.SortFunc(members, compareIPs)
	members = slices.DeleteFunc(slices.Compact(members), func(ip string) bool { return ip == "" })
	r := &Ring{members: members, points: make([]point, 0, len(members)*VirtualNodes)}
	for m, ip := range members {
		for i := range VirtualNodes {
			r.points = append(r.points, point{pointOf(ip, uint16(i)), uint16(m)})
		}
	}
	// Members are sorted, so of equal points that of the lower IP comes first.
	slices.SortFunc(r.points, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.member, b.member))
	})
	return r
}

// Owner returns the member that owns a 64-bit identity hash (fn.Key.Hash): the
// first point at or after the folded hash, wrapping round. It is ("", false)
// exactly if the ring is empty, which the caller must report, not guess round.
func (r *Ring) Owner(hash uint64) (ip string, ok bool) {
	if len(r.points) == 0 {
		return "", false
	}
	return r.members[r.points[r.at(hash)].member], true
}

// at is the index of the point that a hash belongs to; 0 on an empty ring.
func (r *Ring) at(hash uint64) int {
	i, _ := slices.BinarySearchFunc(r.points, fold(hash), func(p point, key uint32) int {
		return cmp.Compare(p.at, key)
	})
	if i == len(r.points) {
		return 0
	}
	return i
}

// Members returns the IPs on the ring, sorted; the caller owns the slice.
func (r *Ring) Members() []string { return slices.Clone(r.members) }

// String lists the members, for logs.
func (r *Ring) String() string { return "[" + strings.Join(r.members, " ") + "]" }

// compareIPs orders addresses as numbers, IPv4 first; what is no address
// comes before them, as text.
func compareIPs(a, b string) int {
	x, _ := netip.ParseAddr(a) // the zero Addr sorts first
	y, _ := netip.ParseAddr(b)
	return cmp.Or(x.Compare(y), strings.Compare(a, b))
}

// pointOf is where virtual node i of a member stands.
func pointOf(ip string, i uint16) uint32 {
	h := fnv.New32a()
	h.Write([]byte(ip)) // a hash never returns an error
	h.Write([]byte{':', byte(i >> 8), byte(i)})
	return fmix32(h.Sum32())
}

// fold is the 32-bit key of a 64-bit identity hash.
func fold(hash uint64) uint32 { return uint32(hash>>32) ^ uint32(hash) }

// fmix32 is the finaliser of MurmurHash3; it spreads the points, which FNV
// alone leaves in clusters for addresses that differ in one digit.
func fmix32(h uint32) uint32 {
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	h ^= h >> 16
	return h
}
