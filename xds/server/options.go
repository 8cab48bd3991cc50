package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	skipperpb "skipper/proto"
	"skipper/xds"
	"skipper/xds/resource"
)

// Source knows the instances of every function at any time.
type Source interface {
	// Instances are those of the function of this resource name; see package
	// xds for names. False means that nothing is known of it; the version of a
	// non-nil answer is used even then. It must not block, may be called from
	// many goroutines, and must already show what a running Apply is about.
	Instances(name string) (*skipperpb.FunctionInstances, bool)
}

// Options of a Server.
type Options struct {
	// Source is asked at the first subscription to a function; nil knows none.
	Source Source
	// Shards of each cluster family, a power of two; 0 is xds.DefaultShards.
	Shards int
	// Cluster holds the timeouts of all clusters.
	Cluster resource.ClusterOptions
	// FamilyLinger is how long the clusters of a protocol stay without any
	// pod; 0 is DefaultFamilyLinger, negative is not at all.
	FamilyLinger time.Duration
	// StuckAfter closes a stream whose client has not answered a response for
	// that long; 0 is DefaultStuckAfter.
	StuckAfter time.Duration
	// MaxNames bounds the names of one type on one stream; 0 is DefaultMaxNames.
	MaxNames int
	// Logger; nil logs nothing.
	Logger *zap.Logger
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
}

// Defaults of Options.
const (
	DefaultFamilyLinger = 10 * time.Minute
	// DefaultStuckAfter leaves an Envoy time to work through a first world of
	// 50,000 endpoints on a busy machine.
	DefaultStuckAfter = time.Minute
	// DefaultMaxNames is ten times the functions that a replica is made for.
	DefaultMaxNames = 100_000
)

// maxResponseBytes keeps a response well below the 4 MiB at which gRPC clients
// refuse a message.
const maxResponseBytes = 1 << 20

func (o Options) withDefaults() Options {
	setDefault(&o.Shards, xds.DefaultShards)
	setDefault(&o.FamilyLinger, DefaultFamilyLinger)
	setDefault(&o.StuckAfter, DefaultStuckAfter)
	setDefault(&o.MaxNames, DefaultMaxNames)
	o.FamilyLinger = max(o.FamilyLinger, 0)
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	o.Logger = o.Logger.Named("xds")
	return o
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Change is one step of the cluster's state.
type Change struct {
	// Remove are UIDs of pods that leave; they leave before the others come.
	Remove []string
	// Upsert are pods that are new or have changed. One that cannot be
	// published is left out, and said in the log.
	Upsert []Endpoint
	// Families are those of pods that will come: Envoys get the clusters before
	// the first of them has an address.
	Families []xds.Protocol
	// Instances are the full lists of functions; those that nobody is
	// subscribed to are dropped at once. The caller must not change them any
	// more, nor pass lists of one function out of order. A list with a lower
	// version than the one before it is dropped.
	Instances []*skipperpb.FunctionInstances
	// Again are names of Instances that are sent even to whoever has the same
	// instances, if their version is newer than what was sent: it may have heard
	// from elsewhere of an instance that has ended since.
	Again map[string]bool
}

// Endpoint is a pod as Envoy sees it.
type Endpoint = resource.Endpoint

// Age of connections and pings; see ServerOptions.
const (
	maxConnectionAge   = 5 * time.Minute // gRPC adds a jitter of 10 % either way
	connectionAgeGrace = time.Minute     // above the longest GetInstance
	// Pings are not policed: Envoy sends one each 300 ms, extproc each 200 ms,
	// and while this process is not run they pile up, which must not cost the
	// connection. It is the least that grpc-go takes: 0 would mean 5 minutes.
	// Nobody without a certificate gets as far as a ping, and grpc-go stops
	// reading while too many answers wait.
	clientPingInterval = time.Nanosecond
	// Pings tell a client that pings less often than these, as routers of other
	// make do, that this replica lives. It is the least that grpc-go takes.
	serverPingInterval = time.Second
	serverPingTimeout  = 20 * time.Second // an Envoy may be busy with its first world for that long
)

// ServerOptions are those that the gRPC server needs so that connections move
// to other replicas after a rollout, dead peers are noticed, and Envoy's and
// extproc's pings are welcome.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: clientPingInterval, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge:      maxConnectionAge,
			MaxConnectionAgeGrace: connectionAgeGrace,
			Time:                  serverPingInterval,
			Timeout:               serverPingTimeout,
		}),
	}
}
