package watch

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/controller/pool"
)

// seen is what an informer's store holds of a pod: what was read of it, a quarter
// of the size of the least Pod that says the same, and what stores, handlers and
// metrics ask of any object. Never changed.
type seen struct {
	metav1.ObjectMeta // without labels and annotations
	pod               pool.Pod
}

// strip is a cache.TransformFunc: it returns what is to be kept of an object.
// Informers may show it its own results again, which pass unchanged, as do
// objects of other kinds, tombstones among them.
func (w *Watch) strip(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Pod:
		return see(o, w.cfg.Functions), nil
	case *appsv1.ReplicaSet:
		return stripReplicaSet(o), nil
	}
	return obj, nil
}

func see(p *corev1.Pod, functions *pool.Parser) *seen {
	return &seen{stripMeta(&p.ObjectMeta), pool.FromPod(p, functions)}
}

// stripReplicaSet keeps what pool.FromReplicaSet reads.
func stripReplicaSet(r *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	out := &appsv1.ReplicaSet{ObjectMeta: stripMeta(&r.ObjectMeta)}
	out.Annotations = keepPrefix(r.Annotations, "deployment.kubernetes.io/revision")
	out.Spec.Replicas = r.Spec.Replicas
	out.Spec.Template.Labels = keepPrefix(r.Spec.Template.Labels, pool.LabelDeployment)
	return out
}

func stripMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds,
	}
}

// keepPrefix keeps the entries with that prefix.
func keepPrefix(m map[string]string, prefix string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		if strings.HasPrefix(k, prefix) {
			out[k] = v
		}
	}
	return out
}
