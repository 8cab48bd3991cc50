package pool

import (
	"net/netip"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
)

// Keys of labels and annotations (contract section 2).
const (
	LabelDeployment      = "skipper/deployment"
	LabelTenant          = "skipper/tenant"
	AnnotationTenant     = "skipper/tenant"
	AnnotationFunction   = "skipper/function"
	AnnotationAssignedAt = "skipper/assigned-at"
	AnnotationReadyAt    = "skipper/ready-at"
	AnnotationReplicaSet = "skipper/replica-set"
	AnnotationPort       = "skipper/port"
	AnnotationProtocol   = "skipper/protocol"
	AnnotationDrainingAt = "skipper/draining-at"
	// AnnotationReadyRestarts is ours: the restarts of the port's container when
	// the pod accepted its assignment. More restarts mean that it may have
	// forgotten it since. A count is used because clocks of nodes differ.
	AnnotationReadyRestarts = "skipper/ready-restarts"
)

// Pod is what Skipper needs to know of one function pod. It is a value: it is
// never changed after it was made, and may be shared between goroutines.
type Pod struct {
	Namespace, Name, UID string

	// IP in canonical text, empty while the pod has none.
	IP string
	// Port that answers requests; 0 where none could be resolved (see Problem).
	Port uint16
	// Protocol spoken on Port; empty where annotation skipper/protocol holds
	// anything but http1 or h2c. Such a pod is never claimed, published or
	// routed to, because either guess would fail request by request.
	Protocol xds.Protocol

	// Deployment is the pool's name, from label skipper/deployment.
	Deployment string
	// Zone of the pod's node, from label topology.kubernetes.io/zone, which
	// Kubernetes copies to pods as of 1.35; empty where there is none.
	Zone string
	// ReplicaSet that made the pod: its controller, or after the claim the
	// annotation that the claim left. Empty where there was none.
	ReplicaSet string
	// OwnedByReplicaSet says that a ReplicaSet is the pod's controller now.
	OwnedByReplicaSet bool

	// Ready is the condition PodReady.
	Ready bool
	Phase corev1.PodPhase
	// Evicted says that Kubernetes has announced to end the pod.
	Evicted     bool
	Deleting    bool
	HostNetwork bool

	// Marked says that the pod carries any trace of a claim: the tenant label,
	// the function or the assigned-at annotation. Only unmarked pods can be
	// claimed.
	Marked bool
	// Spoiled says that an unmarked pod carries an annotation that only a
	// claimed one may have; it cannot be claimed (see Problem).
	Spoiled bool
	// Tenant is the tenant label.
	Tenant string
	// Function is the parsed annotation; nil where the pod is unassigned, and
	// where the annotation cannot be read or names another pool or tenant than
	// the pod's labels and its tenant annotation (see Problem). Shared and
	// read-only.
	Function *skipperpb.Function
	// Key of Function; the zero Key where Function is nil.
	Key fn.Key

	// AssignedAt is the time of the claim; the creation time where a claimed
	// pod's annotation cannot be read; zero for unclaimed pods.
	AssignedAt time.Time
	// ReadyAt is when the pod accepted its assignment; zero: not yet, or not
	// since its container restarted (Forgotten).
	ReadyAt time.Time
	// Forgotten says that the container which owns Port has restarted since the
	// pod accepted its assignment.
	Forgotten bool
	// Draining says that no new request may go to the pod.
	Draining bool
	// DrainingAt is since when; zero where not draining, and where the
	// annotation is there but cannot be read.
	DrainingAt time.Time
	CreatedAt  time.Time

	// Restarts of the container that owns Port.
	Restarts int32
	// StartedAt is when that container's present run began; zero: not running.
	StartedAt time.Time

	// Version is the resource version; 0 where it is no number.
	Version uint64
	// HasAnnotations says that the pod has an annotations map.
	HasAnnotations bool
	// ControllerRef is the index of the ReplicaSet's entry in the pod's owner
	// references; meaningful only with OwnedByReplicaSet.
	ControllerRef int

	// Problem says what is wrong with the pod's labels, annotations or ports
	// and what to do; empty where nothing is.
	Problem string
}

// Addr is "ip:port" as Envoy knows the endpoint ("[ip]:port" for IPv6), or
// empty while the pod has no address or port.
func (p Pod) Addr() string {
	ip, err := netip.ParseAddr(p.IP)
	if err != nil || p.Port == 0 {
		return ""
	}
	return netip.AddrPortFrom(ip, p.Port).String()
}

// State is a step of a pod's life.
type State int

// The states, in order of life; Dead can follow any of them.
const (
	// Unassigned pods wait in the pool, ready for a claim or not.
	Unassigned State = iota
	// Assigned pods are claimed and have not accepted the assignment yet.
	Assigned
	// Ready pods have accepted it.
	Ready
	// Draining pods finish what they have.
	Draining
	// Terminating pods are being deleted.
	Terminating
	// Dead pods have failed, finished or are being evicted.
	Dead
)

var stateNames = [...]string{"unassigned", "assigned", "ready", "draining", "terminating", "dead"}

// String is the state's name in logs and metrics.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return "unknown"
	}
	return stateNames[s]
}

// State tells where the pod is in its life. It depends on nothing but p.
func (p Pod) State() State {
	switch {
	case p.Deleting:
		return Terminating
	case p.Finished() || p.Evicted:
		return Dead
	case p.Marked && p.Draining:
		return Draining
	case p.Marked && !p.ReadyAt.IsZero():
		return Ready
	case p.Marked:
		return Assigned
	}
	return Unassigned
}

// Routable says that new requests may go to the pod: it has accepted the
// assignment of a known function, is ready in Kubernetes' eyes, has an address,
// and is neither draining, nor being deleted, nor dead.
func (p Pod) Routable() bool {
	return p.State() == Ready && p.Function != nil && p.Ready && p.Protocol != "" && p.Addr() != ""
}

// Publishable says that Envoy may know the pod as an endpoint: it has an
// address and a protocol and has not finished. Unassigned and terminating pods
// are published too.
func (p Pod) Publishable() bool {
	return p.Protocol != "" && p.Addr() != "" && !p.Finished() && !p.HostNetwork
}

// Finished says that the pod's containers have ended for good.
func (p Pod) Finished() bool {
	return p.Phase == corev1.PodFailed || p.Phase == corev1.PodSucceeded
}

// Instance is the pod in the words of the contract. Shards is the number of
// clusters per family, a power of two.
func Instance(p Pod, shards int) *skipperpb.Instance {
	return &skipperpb.Instance{
		Function:   p.Function,
		Name:       p.Name,
		Addr:       p.Addr(),
		ReplicaSet: p.ReplicaSet,
		AssignedAt: timestamp(p.AssignedAt),
		ReadyAt:    timestamp(p.ReadyAt),
		Uid:        p.UID,
		Cluster:    xds.ClusterOf(p.Protocol, p.UID, shards),
		Version:    p.Version,
		Zone:       p.Zone,
	}
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// same says that a and b differ in nothing but their version. The parser's
// cache may have given equal functions different pointers.
func same(a, b Pod) bool {
	if a.Function != b.Function && !proto.Equal(a.Function, b.Function) {
		return false
	}
	a.Function, b.Function = nil, nil
	a.Version, b.Version = 0, 0
	return a == b
}
