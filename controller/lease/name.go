package lease

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"skipper/xds"
)

// Label is on the Lease of every extproc.
const (
	Label      = "app.kubernetes.io/component"
	LabelValue = "skipper-extproc"
)

// Annotations that tell where the extproc is: which Envoy it serves, and the IP
// of the pod that both are in.
const (
	envoyAnnotation = "skipper/envoy-node"
	ipAnnotation    = "skipper/router-ip"
)

// namePrefix stands before the router id in a Lease's name.
const namePrefix = "skipper-extproc-"

// nameOf is the name of the Lease of a node: by its router id where that can
// stand in a name, else by its hash.
func nameOf(node string) string {
	_, id, _ := strings.Cut(node, "/")
	name := namePrefix + id
	if len(validation.IsDNS1123Subdomain(name)) == 0 && node == xds.ExtprocNode(id) {
		return name
	}
	sum := sha256.Sum256([]byte(node))
	return namePrefix + "hash-" + hex.EncodeToString(sum[:16])
}

// newLease says that the node was in step at one time and connected at another.
func newLease(namespace string, s State, staleness time.Duration) *coordinationv1.Lease {
	seconds := int32(min(staleness.Seconds(), 1<<30))
	annotations := map[string]string{}
	for key, value := range map[string]string{envoyAnnotation: s.Envoy, ipAnnotation: s.IP} {
		if value != "" {
			annotations[key] = value
		}
	}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: nameOf(s.Node), Labels: map[string]string{Label: LabelValue}, Annotations: annotations},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &s.Node, LeaseDurationSeconds: &seconds,
			AcquireTime: &metav1.MicroTime{Time: s.InStep}, RenewTime: &metav1.MicroTime{Time: s.Connected},
		},
	}
}

// read is what a Lease says; false where it says nothing that can be read.
func read(l *coordinationv1.Lease) (s State, ok bool) {
	if l.Spec.HolderIdentity == nil || l.Spec.RenewTime == nil || *l.Spec.HolderIdentity == "" {
		return State{}, false
	}
	s = State{Node: *l.Spec.HolderIdentity, Connected: l.Spec.RenewTime.Time, Envoy: l.Annotations[envoyAnnotation], IP: l.Annotations[ipAnnotation]}
	if l.Spec.AcquireTime != nil {
		s.InStep = l.Spec.AcquireTime.Time
	}
	return s, true
}
