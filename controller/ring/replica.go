package ring

import "slices"

// Replica is a controller as the cluster shows it.
type Replica struct {
	IP string
	// Ready says that it answers calls, Terminating that it is about to stop.
	Ready, Terminating bool
}

// Joined says who stands on the ring as one replica sees it: the others that
// are ready and not about to stop, and itself once it is serving. It does not
// wait for the cluster to call itself ready, because that takes a probe, and
// nobody could be responsible until then. One that is about to stop leaves to
// the others; with nobody else there, it stays to the end.
func Joined(self string, serving bool, seen []Replica) []string {
	var ips []string
	leaving := false
	for _, r := range seen {
		switch {
		case r.IP == self:
			leaving = leaving || r.Terminating
		case r.Ready && !r.Terminating:
			ips = append(ips, r.IP)
		}
	}
	if serving && (!leaving || len(ips) == 0) {
		ips = append(ips, self)
	}
	slices.SortFunc(ips, compareIPs)
	return slices.Compact(ips)
}

// OwnerWithout is the owner on the same ring without the members for which
// gone is true: the first other member at or after the key. It is ("", false)
// if nobody is left.
func (r *Ring) OwnerWithout(hash uint64, gone func(ip string) bool) (ip string, ok bool) {
	refused := map[uint16]bool{}
	at := r.at(hash)
	for i := range r.points {
		m := r.points[(at+i)%len(r.points)].member
		if refused[m] {
			continue
		}
		if ip := r.members[m]; !gone(ip) {
			return ip, true
		}
		refused[m] = true
		if len(refused) == len(r.members) {
			break
		}
	}
	return "", false
}
