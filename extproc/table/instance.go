package table

import (
	"fmt"
	"sync/atomic"
	"time"

	skipperpb "skipper/proto"

	"skipper/extproc/wire"
)

// Instance is a pod assigned to a function. Immutable but for the count of
// requests in progress, and of failures, which all
// Instance values of one pod share.
type Instance struct {
	UID, Name string
	// Version is the resource version of the pod that this was read from.
	Version uint64
	// Assigned is when the pod was claimed; zero where the sender did not say.
	Assigned time.Time
	// Answer is what Envoy is told to send a request here.
	Answer wire.Answer
	// Proto is the instance as the controller described it; read only.
	Proto *skipperpb.Instance

	count *counter
}

// InFlight is how many requests are in progress on the pod, as far as this
// process knows.
func (i *Instance) InFlight() int64 { return i.count.n.Load() }

// counter of what happens on one pod.
type counter struct {
	// n is the number of requests in progress.
	n atomic.Int64
	// mark is nil while nothing is held against the pod.
	mark atomic.Pointer[mark]
	// failures since they were last reported.
	failures atomic.Uint32
}

// Check reports what makes i unusable to route by.
func Check(i *skipperpb.Instance) error {
	switch {
	case i.GetUid() == "":
		return fmt.Errorf("instance %q has no uid", i.GetName())
	case i.GetAddr() == "":
		return fmt.Errorf("instance %q has no addr", i.GetName())
	case i.GetCluster() == "":
		return fmt.Errorf("instance %q has no cluster", i.GetName())
	}
	return nil
}

func newInstance(i *skipperpb.Instance, c *counter) *Instance {
	at := time.Time{}
	if i.GetAssignedAt() != nil {
		at = i.GetAssignedAt().AsTime()
	}
	return &Instance{
		UID: i.GetUid(), Name: i.GetName(), Version: i.GetVersion(), Assigned: at, Proto: i,
		Answer: wire.NewAnswer(i.GetUid(), i.GetCluster(), i.GetAddr(), names(i.GetFunction())), count: c,
	}
}

func names(f *skipperpb.Function) wire.Names {
	return wire.Names{Namespace: f.GetNamespace(), Deployment: f.GetDeployment(), Tenant: f.GetTenant()}
}

// Lease is one request in progress on one instance. The zero value holds none.
// Not safe for concurrent use.
type Lease struct {
	// Instance is the pod that the request was sent to; nil in the zero value.
	Instance *Instance
	// Function is the one that the pod serves.
	Function *Function
}

// Usable reports whether requests may still be sent to the instance, as far as
// the table knows at this moment.
func (l *Lease) Usable() bool { return l.Function.View().holds(l.Instance) }

// Release ends the request: the count that Acquire raised is lowered. Further
// calls do nothing.
func (l *Lease) Release() {
	if l.Instance != nil {
		l.Instance.count.n.Add(-1)
		*l = Lease{}
	}
}
