package xds

import (
	"strconv"

	"github.com/cespare/xxhash/v2"

	"skipper/proto/fn"
)

// InstancesTypeURL is the xDS type of skipper.FunctionInstances.
const InstancesTypeURL = "type.googleapis.com/skipper.FunctionInstances"

// Protocol is how Envoy speaks to the pods of a pool; it selects a cluster family.
type Protocol string

// The two values of annotation skipper/protocol.
const (
	HTTP1 Protocol = "http1"
	H2C   Protocol = "h2c"
)

// DefaultShards is how many clusters a family has: the power of two at which
// an endpoint update costs Envoy little at 50,000 endpoints (design section 3).
const DefaultShards = 256

// ClusterName names shard i of a family, "skipper-http1-007"; Envoy, extproc
// and controller know the cluster by it.
func ClusterName(p Protocol, i int) string {
	s := strconv.Itoa(i)
	for len(s) < 3 {
		s = "0" + s
	}
	return "skipper-" + string(p) + "-" + s
}

// ClusterOf names the cluster of a pod. Shards must be a power of two. A new
// pod at an old address nearly always gets another cluster, because the shard
// follows from the UID alone.
func ClusterOf(p Protocol, uid string, shards int) string {
	return ClusterName(p, int(xxhash.Sum64String(uid)&uint64(shards-1)))
}

// InstancesName is the resource name of a function's instances.
func InstancesName(k fn.Key) string { return k.String() }
