package purge

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skipper/controller/lease"
	"skipper/controller/pool"
	"skipper/controller/provision"
)

// Object is what a plan looks at of something that was found.
type Object struct {
	Kind, Namespace, Name string
	UID                   types.UID
	Labels, Annotations   map[string]string
	// Owner is the controller reference as "kind name"; empty: there is none.
	Owner string
	// Running is how many replicas a Deployment has been told to run.
	Running int32
}

func (o Object) String() string { return o.Kind + " " + o.Namespace + "/" + o.Name }

// Item is what is to happen to one object, and why.
type Item struct {
	Object
	Delete bool
	Reason string
}

// Plan decides for each object. The signing key and certificates stay where
// keepKeys says so. While controllers run it is an error, since they would make
// anew what is deleted. The result is ordered by kind: pods first.
func Plan(found []Object, keepKeys bool) ([]Item, error) {
	var out []Item
	for _, o := range found {
		if o.Kind == deployment {
			if o.Running > 0 {
				return nil, fmt.Errorf("%s is there, with %d replicas: uninstall Skipper first; if it is not the one that was uninstalled, name only function namespaces that it does not use", o, o.Running)
			}
			continue
		}
		out = append(out, decide(o, keepKeys))
	}
	slices.SortStableFunc(out, func(a, b Item) int { return slices.Index(order(), a.Kind) - slices.Index(order(), b.Kind) })
	return out, nil
}

const (
	pod        = "Pod"
	leaseKind  = "Lease"
	configMap  = "ConfigMap"
	secret     = "Secret"
	deployment = "Deployment"
)

func order() []string { return []string{pod, leaseKind, configMap, secret} }

func decide(o Object, keepKeys bool) Item {
	switch o.Kind {
	case pod:
		return decidePod(o)
	case leaseKind:
		if o.Labels[lease.Label] == lease.LabelValue {
			return Item{o, true, "says which tables an extproc has"}
		}
		return Item{o, false, "is no extproc's"}
	default:
		return decideKey(o, keepKeys)
	}
}

// decidePod deletes what a claim has taken out of its ReplicaSet: nobody else
// would ever delete it.
func decidePod(o Object) Item {
	switch {
	case o.Labels[pool.LabelDeployment] == "" || o.Labels[pool.LabelTenant] == "":
		return Item{o, false, "was never claimed"}
	case o.Annotations[pool.AnnotationFunction] == "":
		return Item{o, false, "has a tenant, but was not claimed by Skipper"}
	case o.Owner != "":
		return Item{o, false, "still belongs to " + o.Owner}
	}
	return Item{o, true, "is assigned to tenant " + o.Labels[pool.LabelTenant] + ", and nothing owns it"}
}

func decideKey(o Object, keepKeys bool) Item {
	ours := o.Name == provision.PrivateKeyName || o.Name == provision.PublicKeyName || strings.HasPrefix(o.Name, provision.CertificatePrefix)
	switch {
	case !ours:
		return Item{o, false, "is not Skipper's"}
	case keepKeys:
		return Item{o, false, "keys are kept"}
	case o.Name == provision.PrivateKeyName:
		return Item{o, true, "signs assignments: another installation makes its own"}
	}
	return Item{o, true, "is of no use without Skipper"}
}

// objectOf takes from metadata what a plan looks at.
func objectOf(kind string, m *metav1.ObjectMeta) Object {
	o := Object{Kind: kind, Namespace: m.Namespace, Name: m.Name, UID: m.UID, Labels: m.Labels, Annotations: m.Annotations}
	if owner := metav1.GetControllerOf(m); owner != nil {
		o.Owner = owner.Kind + " " + owner.Name
	}
	return o
}
