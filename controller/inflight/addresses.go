package inflight

import (
	"slices"
	"sync"

	"skipper/controller/pool"
	"skipper/xds"
	"skipper/xds/loads"
)

// Addresses tells whose an endpoint of a load report is. The cluster follows
// from the pod's UID, so a pod that took over an address is not taken for the
// one before it, which another cluster held. Safe for concurrent use.
type Addresses struct {
	shards int

	mu sync.RWMutex
	// at are the UIDs of the pods that Envoy may know at an endpoint: seldom
	// more than one. Guarded by mu.
	at map[endpoint][]string
}

// endpoint is a place as load reports name it.
type endpoint struct{ cluster, addr string }

// NewAddresses knows no pod yet. Shards of each cluster family must be those of
// the xDS server.
func NewAddresses(shards int) *Addresses {
	return &Addresses{shards: shards, at: map[endpoint][]string{}}
}

// Observe is a listener of the pool view.
func (a *Addresses) Observe(e pool.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.Old != nil {
		a.removeLocked(*e.Old)
	}
	if e.New != nil && e.New.Publishable() {
		at := a.endpoint(*e.New)
		a.at[at] = append(a.at[at], e.New.UID)
	}
}

func (a *Addresses) endpoint(p pool.Pod) endpoint {
	return endpoint{xds.ShardClusterOf(p.Protocol, p.UID, a.shards), p.Addr()}
}

func (a *Addresses) removeLocked(p pool.Pod) {
	at := a.endpoint(p)
	left := slices.DeleteFunc(a.at[at], func(uid string) bool { return uid == p.UID })
	if a.at[at] = left; len(left) == 0 {
		delete(a.at, at)
	}
}

// Resolve turns a report's endpoints into pods. Where several pods share an
// endpoint each of them may be the one at work. Unknown is the number of
// endpoints that no pod has.
func (a *Addresses) Resolve(busy []loads.Busy) (inFlight map[string]uint32, unknown int) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	inFlight = make(map[string]uint32, len(busy))
	for _, b := range busy {
		uids := a.at[endpoint{b.Cluster, b.Addr}]
		if len(uids) == 0 {
			unknown++
		}
		for _, uid := range uids {
			inFlight[uid] += b.InProgress
		}
	}
	return inFlight, unknown
}
