package state

import (
	"context"
	"time"

	"skipper/controller/claim"
	"skipper/controller/heartbeat"
	"skipper/controller/inflight"
	"skipper/controller/pool"
	"skipper/controller/ring"
	"skipper/controller/supervise"
	"skipper/controller/usage"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds/server"
)

// pods is what is read of the cluster: *pool.View.
type pods interface {
	Pools() []pool.Name
	Instances(key fn.Key) []pool.Pod
	Unassigned(namespace, deployment string) []*pool.Pod
	ReplicaSets(namespace, deployment string) []pool.ReplicaSet
}

// supervisors scale functions: *supervise.Supervisors.
type supervisors interface{ Statuses() []supervise.Status }

// meter is what instances use: *usage.Reader.
type meter interface {
	Of(namespace, pod string, now time.Time) (usage.Usage, bool)
}

// peers are the other replicas: *forward.Peers.
type peers interface {
	Members() []string
	Call(ctx context.Context, ip string, do func(context.Context, skipperpb.ReplicaServiceClient) error) error
}

// Sources are where a Gatherer looks; all fields are required.
type Sources struct {
	// Self is this replica's IP.
	Self      string
	StartedAt time.Time
	// Version of the program.
	Version string
	// Settings are shown, secrets masked already.
	Settings []*skipperpb.ConfigValue
	// Shards of each cluster family, as xDS has them.
	Shards int

	Pods        pods
	Ring        *ring.Members
	Peers       peers
	Supervisors supervisors
	Heartbeats  *heartbeat.Store
	Loads       *inflight.Store
	Usage       meter
	Waiting     func() map[pool.Name]int
	Subscribers func() []server.Subscriber
	Events      func() []*skipperpb.Event
	// Replicas are the controllers that the cluster shows, on the ring or not.
	Replicas func() []ring.Replica
	// Synced says that all pods are known and calls are served.
	Synced func() bool
	// FreshAt is a time up to which the view shows everything; zero: none yet.
	FreshAt func() time.Time
	// Held is why nothing is scaled and no xDS served; empty: both are.
	Held func() string
	// Problems of pools, and of Envoys by node id.
	PoolProblems  func() map[pool.Name]string
	EnvoyProblems func() map[string]string
}

// stock is claim.Stock for a pool of the view.
func stock(p pods, name pool.Name) (usable, unusable int, why string) {
	return claim.Stock(p.Unassigned(name.Namespace, name.Deployment))
}
