package lease

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Label is on the Lease of every extproc.
const (
	Label      = "app.kubernetes.io/component"
	LabelValue = "skipper-extproc"
)

// namePrefix stands before the router id in a Lease's name.
const namePrefix = "skipper-extproc-"

// nameOf is the name of the Lease of a node: by its router id where that can
// stand in a name, else by its hash.
func nameOf(node string) string {
	_, id, _ := strings.Cut(node, "/")
	name := namePrefix + id
	if len(validation.IsDNS1123Subdomain(name)) == 0 && node == "extproc/"+id {
		return name
	}
	sum := sha256.Sum256([]byte(node))
	return namePrefix + "hash-" + hex.EncodeToString(sum[:16])
}

// newLease says that the node was in step at the given time.
func newLease(namespace, node string, inStep time.Time, staleness time.Duration) *coordinationv1.Lease {
	seconds := int32(min(staleness.Seconds(), 1<<30))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: nameOf(node), Labels: map[string]string{Label: LabelValue}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &node, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: inStep},
		},
	}
}

// read is what a Lease says; false where it says nothing that can be read.
func read(l *coordinationv1.Lease) (node string, inStep time.Time, ok bool) {
	if l.Spec.HolderIdentity == nil || l.Spec.RenewTime == nil || *l.Spec.HolderIdentity == "" {
		return "", time.Time{}, false
	}
	return *l.Spec.HolderIdentity, l.Spec.RenewTime.Time, true
}
