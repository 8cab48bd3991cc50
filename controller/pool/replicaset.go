package pool

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// revisionAnnotation numbers the ReplicaSets of a Deployment; set by Kubernetes.
const revisionAnnotation = "deployment.kubernetes.io/revision"

// ReplicaSet is what Skipper needs to know of one: a value, never changed.
type ReplicaSet struct {
	Namespace, Name string
	// Deployment is the pool's name: label skipper/deployment of the pods that
	// it makes. Empty: it makes no function pods.
	Deployment string
	// Replicas is the number of unassigned pods that it keeps.
	Replicas int32
	// Revision within its Deployment; 0 where it has none.
	Revision  int64
	CreatedAt time.Time
}

// Active says that the ReplicaSet makes pods.
func (r ReplicaSet) Active() bool { return r.Replicas > 0 }

// FromReplicaSet reads a ReplicaSet; an unreadable revision counts as 0.
func FromReplicaSet(r *appsv1.ReplicaSet) ReplicaSet {
	out := ReplicaSet{
		Namespace: r.Namespace, Name: r.Name,
		Deployment: r.Spec.Template.Labels[LabelDeployment],
		Replicas:   1, // the API's meaning of nil
		CreatedAt:  wallTime(r.CreationTimestamp),
	}
	if r.Spec.Replicas != nil {
		out.Replicas = *r.Spec.Replicas
	}
	if n, err := strconv.ParseInt(r.Annotations[revisionAnnotation], 10, 64); err == nil {
		out.Revision = n
	}
	return out
}

// ApplyReplicaSet records a ReplicaSet that the informer showed.
func (v *View) ApplyReplicaSet(r ReplicaSet) {
	if r.Deployment == "" {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	k := poolKey{r.Namespace, r.Deployment}
	v.known[k] = struct{}{}
	if v.replicaSets[k] == nil {
		v.replicaSets[k] = map[string]ReplicaSet{}
	}
	v.replicaSets[k][r.Name] = r
}

// RemoveReplicaSet records that the informer saw the ReplicaSet vanish.
func (v *View) RemoveReplicaSet(r ReplicaSet) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := poolKey{r.Namespace, r.Deployment}
	if delete(v.replicaSets[k], r.Name); len(v.replicaSets[k]) == 0 {
		delete(v.replicaSets, k)
	}
}

// ReplicaSets returns the pool's ReplicaSets: active ones first, the newest
// first among each.
func (v *View) ReplicaSets(namespace, deployment string) []ReplicaSet {
	v.mu.Lock()
	set := v.replicaSets[poolKey{namespace, deployment}]
	list := make([]ReplicaSet, 0, len(set))
	for _, r := range set {
		list = append(list, r)
	}
	v.mu.Unlock()
	slices.SortFunc(list, newestActiveFirst)
	return list
}

func newestActiveFirst(a, b ReplicaSet) int {
	if a.Active() != b.Active() {
		if a.Active() {
			return -1
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(b.Revision, a.Revision),
		b.CreatedAt.Compare(a.CreatedAt),
		cmp.Compare(a.Name, b.Name),
	)
}
