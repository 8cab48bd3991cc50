package doctor

import (
	"time"

	"skipper/cmd/skipper/internal/pools"
	skipperpb "skipper/proto"
)

// Facts is what is known of a cluster at one time. The zero value of a field
// means that nothing was learned, and Gaps says why.
type Facts struct {
	// Now by this machine's clock.
	Now time.Time
	// System is the namespace of the controllers.
	System string
	// Namespaces of functions, by the controllers' settings.
	Namespaces []string
	Server     Reading
	Access     []Access
	Metrics    Metrics
	// Pools of all namespaces that could be read.
	Pools        []pools.Pool
	Replicas     []Replica
	Leases       []Lease
	Gateways     []string
	Certificates []Certificate
	Gaps         []Gap
}

// Gap is a check that could not be done.
type Gap struct{ Check, What, Why string }

// Reading is a clock that was read between two times of this machine's.
type Reading struct {
	At              time.Time
	Asked, Answered time.Time
	// Step is the clock's resolution.
	Step time.Duration
}

// Access is something that somebody needs the right to do.
type Access struct {
	// Who is the controllers' service account, or "you".
	Who, Namespace, Verb, Group, Resource string
	// For is what does not work without it.
	For     string
	Allowed bool
}

// You is Access.Who of the person that asks.
const You = "you"

// Metrics is whether the cluster has the metrics API.
type Metrics struct{ Known, Served bool }

// Replica is one controller's pod and what it answered.
type Replica struct {
	Pod, IP string
	Ready   bool
	// State is nil where it did not answer, and Error says why.
	State           *skipperpb.ClusterState
	Error           string
	Asked, Answered time.Time
}

// Lease is that of an extproc.
type Lease struct {
	Name string
	// Node is the extproc's xDS node id, Envoy the node id of its Envoy.
	Node, Envoy string
	Renewed     time.Time
	Lasts       time.Duration
}

// Certificate is that of a role.
type Certificate struct {
	Secret string
	Ends   time.Time
}

// state is the answer of the first replica that gave all it knows; nil: none did.
func (f Facts) state() *skipperpb.ClusterState {
	for _, r := range f.Replicas {
		if r.State != nil {
			return r.State
		}
	}
	return nil
}
