package watch

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/controller/pool"
)

// strip is a cache.TransformFunc: it returns a copy with only what is read.
// Objects of other kinds, tombstones among them, pass unchanged.
func strip(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Pod:
		return stripPod(o), nil
	case *appsv1.ReplicaSet:
		return stripReplicaSet(o), nil
	}
	return obj, nil
}

// stripPod keeps what pool.FromPod reads, and what the ring needs of our own pods.
func stripPod(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: stripMeta(&p.ObjectMeta)}
	out.OwnerReferences = p.OwnerReferences
	out.Spec.HostNetwork = p.Spec.HostNetwork
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		out.Spec.Containers = append(out.Spec.Containers, corev1.Container{Name: c.Name, Ports: c.Ports})
	}
	out.Status = corev1.PodStatus{Phase: p.Status.Phase, Reason: p.Status.Reason, PodIP: p.Status.PodIP}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady || c.Type == corev1.DisruptionTarget {
			out.Status.Conditions = append(out.Status.Conditions, corev1.PodCondition{Type: c.Type, Status: c.Status})
		}
	}
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		out.Status.ContainerStatuses = append(out.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: s.Name, RestartCount: s.RestartCount, State: corev1.ContainerState{Running: s.State.Running},
		})
	}
	return out
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
		Labels:                     keepPrefix(m.Labels, "skipper/"),
		Annotations:                keepPrefix(m.Annotations, "skipper/"),
	}
}

// keepPrefix keeps the entries with that prefix. A map that is there stays
// there, be it empty, because the claim must know whether it is.
func keepPrefix(m map[string]string, prefix string) map[string]string {
	if m == nil {
		return nil
	}
	out := map[string]string{}
	for k, v := range m {
		if strings.HasPrefix(k, prefix) {
			out[k] = v
		}
	}
	return out
}
