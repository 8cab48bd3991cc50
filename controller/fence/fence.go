// Package fence decides whether a pod may be claimed, and shown to Envoy, at
// the address that it has: not while somebody may still send the requests of
// an address's former owner there.
//
// It is a pure decision over what package withdraw knows of the address. It
// asks nobody and remembers nothing.
package fence

import (
	"fmt"
	"time"
)

// Question is all that is known of a free pod's address at a moment.
type Question struct {
	UID, Namespace string
	// Addr in canonical form; empty while the pod has none.
	Addr string
	// StartedAt is when the pod's container began to run, by its node's clock:
	// it had the address by then. Zero: unknown.
	StartedAt time.Time
	// Owners are all pods that have the address and have not finished.
	Owners []Owner
	// Withdrawn are the pods that had the address while they were claimed, and
	// of which somebody may not know yet that they have left routing, or has heard
	// it so lately that a request may still be under way.
	Withdrawn []string // UIDs
	// Complete says that Withdrawn leaves nobody out.
	Complete bool
	// Away is an extproc that is away and may know former owners that Withdrawn,
	// where it is not complete, does not have: of all such, the one that was in
	// step before the others. Empty: there is none.
	Away string
	// LastInStep is when that was; zero: never.
	LastInStep time.Time
}

// Owner is a pod that has the address.
type Owner struct {
	UID, Namespace string
	Claimed        bool
}

// skew is by how much the clocks of nodes may differ.
const skew = 10 * time.Second

// Decision says whether the pod may be claimed and published, and if not, why.
type Decision struct {
	Allowed bool
	// Cause is one of the constants below; empty where allowed.
	Cause  string
	Reason string
}

// Causes, as they stand in metrics.
const (
	CauseWithdrawn = "withdrawn"
	CauseOwned     = "owned"
	CauseUnknown   = "unknown"
)

// Decide answers the question. Fresh addresses pass at once wherever the
// history is complete; where it is not, so do pods that had their address
// before the extproc that is away was last in step, because what it knows of
// the address is no older than that.
func Decide(q Question) Decision {
	for _, uid := range q.Withdrawn {
		if uid != q.UID {
			return no(CauseWithdrawn, "address %s was that of pod %s, and not every extproc is known to have forgotten it, and to have sent nothing there lately", q.Addr, uid)
		}
	}
	for _, o := range q.Owners {
		if o.UID != q.UID && (o.Claimed || o.Namespace != q.Namespace) {
			return no(CauseOwned, "address %s is also that of pod %s in namespace %s, which has not finished", q.Addr, o.UID, o.Namespace)
		}
	}
	if q.Complete || q.Away == "" {
		return Decision{Allowed: true}
	}
	if q.StartedAt.IsZero() || q.LastInStep.IsZero() || q.StartedAt.After(q.LastInStep.Add(-skew)) {
		return no(CauseUnknown, "pod started after %s was last in step, and what that knows of address %s is unknown until it is back", q.Away, q.Addr)
	}
	return Decision{Allowed: true}
}

func no(cause, format string, args ...any) Decision {
	return Decision{Cause: cause, Reason: fmt.Sprintf(format, args...)}
}
