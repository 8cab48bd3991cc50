package forward

import "skipper/controller/ring"

// Question is what Route is asked.
type Question struct {
	Ring *ring.Ring
	// Self is this replica's IP on the ring.
	Self string
	// Hash of the function (fn.Key.Hash).
	Hash uint64
	// Forwarded says that another replica has sent the call here.
	Forwarded bool
	// Serving says that this replica has seen enough to execute a call.
	Serving bool
	// Down tells which other members cannot be reached; nil: none.
	Down func(ip string) bool
}

// Route is where a call goes: to IP, or executed here if Local. Neither means
// that nobody can execute it now.
type Route struct {
	IP     string
	Local  bool
	Reason Reason
}

// Reason is why a call goes where it goes; a closed list, for logs and metrics.
type Reason string

// The reasons.
const (
	Responsible   Reason = "responsible"       // this replica owns the function
	Forwarded     Reason = "forwarded"         // executed by whoever receives it
	ToOwner       Reason = "owner"             // another replica owns it
	ToNext        Reason = "next_owner"        // its owner cannot be reached
	InPlaceOf     Reason = "in_place_of_owner" // this replica comes next
	NobodyElse    Reason = "nobody_else"       // no member can be reached
	NobodyAtAll   Reason = "nobody"            // nor can this replica execute it
	NotServingYet Reason = "not_serving"       // forwarded to a replica that is not ready, or stopping
)

// Decide says where a call goes.
func Decide(q Question) Route {
	if q.Forwarded {
		return executeHere(q.Serving, Forwarded, NotServingYet)
	}
	owner, _ := q.Ring.Owner(q.Hash)
	ip, ok := q.Ring.OwnerWithout(q.Hash, func(ip string) bool {
		if ip == q.Self {
			return !q.Serving
		}
		return q.Down != nil && q.Down(ip)
	})
	switch {
	case !ok:
		return executeHere(q.Serving, NobodyElse, NobodyAtAll)
	case ip == q.Self && ip == owner:
		return Route{Local: true, Reason: Responsible}
	case ip == q.Self:
		return Route{Local: true, Reason: InPlaceOf}
	case ip == owner:
		return Route{IP: ip, Reason: ToOwner}
	}
	return Route{IP: ip, Reason: ToNext}
}

func executeHere(serving bool, yes, no Reason) Route {
	if serving {
		return Route{Local: true, Reason: yes}
	}
	return Route{Reason: no}
}

// Spread says to whom a batch of heartbeats that was received here goes on,
// and the forwarded_for that it carries to each of them: the ring members who
// are not known to have it (contract section 3).
func Spread(members []string, self string, forwardedFor []string) (targets, next []string) {
	has := make(map[string]bool, len(forwardedFor)+1)
	for _, ip := range append(forwardedFor[:len(forwardedFor):len(forwardedFor)], self) {
		if !has[ip] {
			has[ip] = true
			next = append(next, ip)
		}
	}
	for _, ip := range members {
		if !has[ip] {
			targets = append(targets, ip)
		}
	}
	return targets, append(next, targets...)
}
