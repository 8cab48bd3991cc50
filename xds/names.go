package xds

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	skipperpb "skipper/proto"
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

// LeastStaleness is the shortest --table-staleness that makes sense. A controller
// may go on serving for that long before it can tell that it does not see the
// cluster: where nothing happens, only bookmarks prove its watch, about one a
// minute. A shorter time gains nothing and ends warm traffic sooner.
const LeastStaleness = 4 * time.Minute

// StalenessAdvice says what to do about a --table-staleness that is too short;
// empty where it is not.
func StalenessAdvice(d time.Duration) string {
	if d >= LeastStaleness {
		return ""
	}
	return fmt.Sprintf("--table-staleness %s is below %s, the time in which a controller finds out that its watch stands still: warm traffic ends sooner without a controller, and nothing is safer; set at least %s, the same for controllers and extprocs",
		d, LeastStaleness, LeastStaleness)
}

// SecondPassCluster leads from a gateway's Envoy back into itself, where
// extproc picks again. Every gateway's bootstrap has it.
const SecondPassCluster = "skipper-second-pass"

// routedSuffix makes the name of a routed cluster from that of its shard; it
// sorts after its shard, and so is never sent before it.
const routedSuffix = "-routed"

// ClusterName names shard i of a family, "skipper-http1-007": the cluster that
// holds endpoints, and under which Envoy reports their load.
func ClusterName(p Protocol, i int) string {
	s := strconv.Itoa(i)
	for len(s) < 3 {
		s = "0" + s
	}
	return "skipper-" + string(p) + "-" + s
}

// ShardOf is the shard of a pod within its family. Shards must be a power of
// two. A new pod at an old address nearly always gets another shard, because
// the shard follows from the UID alone.
func ShardOf(uid string, shards int) int {
	return int(xxhash.Sum64String(uid) & uint64(shards-1))
}

// RoutedName names the cluster to which requests for pods of shard i are
// routed, "skipper-http1-007-routed": the shard first, then the second pass.
func RoutedName(p Protocol, i int) string { return ClusterName(p, i) + routedSuffix }

// ClusterOf names the cluster to which a pod's requests are routed: the
// RoutedName of its ShardOf. It is Instance.cluster.
func ClusterOf(p Protocol, uid string, shards int) string {
	return RoutedName(p, ShardOf(uid, shards))
}

// ShardClusterOf names the cluster that holds a pod's endpoint: the
// ClusterName of its ShardOf. Load reports name it.
func ShardClusterOf(p Protocol, uid string, shards int) string {
	return ClusterName(p, ShardOf(uid, shards))
}

// ExtprocPrefix stands before the router id in the xDS node id of an extproc.
const ExtprocPrefix = "extproc/"

// ExtprocNode is the xDS node id of the extproc with the router id.
func ExtprocNode(routerID string) string { return ExtprocPrefix + routerID }

// InstancesName is the resource name of a function's instances.
func InstancesName(k fn.Key) string { return k.String() }

// ParseInstancesName is the inverse of InstancesName. It accepts only what
// InstancesName makes of a usable function, so that each function has exactly
// one name; the error says what is wrong with any other.
func ParseInstancesName(name string) (fn.Key, error) {
	parts := strings.Split(name, "/")
	if len(parts) < 3 || len(parts) > 4 || (len(parts) == 4 && parts[3] != "oneshot") {
		return fn.Key{}, fmt.Errorf("instances name %.80q is not namespace/deployment/tenant or namespace/deployment/tenant/oneshot", name)
	}
	k := fn.Key{Namespace: parts[0], Deployment: parts[1], Tenant: parts[2], Oneshot: len(parts) == 4}
	if err := fn.Validate(functionOf(k)); err != nil {
		return fn.Key{}, fmt.Errorf("instances name %.80q: %w", name, err)
	}
	return k, nil
}

// functionOf is the least function with this identity.
func functionOf(k fn.Key) *skipperpb.Function {
	return &skipperpb.Function{
		Namespace: k.Namespace, Deployment: k.Deployment, Tenant: k.Tenant, Oneshot: k.Oneshot,
		Scale: &skipperpb.Scale{MaxInstances: 1},
	}
}
