package main

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/test/bench/internal/apistub"
)

const (
	fleetNamespace   = "fleet"
	fleetOwn         = "skipper-system"
	fleetDeployments = 10
	// fleetAge is how long ago everything began: beyond every protection period.
	fleetAge = time.Hour
)

// fleetWorld is a cluster of so many pods of which the first ones are assigned,
// one to each function.
type fleetWorld struct{ pods, functions int }

// function is the i-th one.
func (fleetWorld) function(i int) *skipperpb.Function {
	return &skipperpb.Function{
		Namespace: fleetNamespace, Deployment: fleetDeployment(i), Tenant: fmt.Sprintf("tenant-%05d", i), Metadata: "v2",
		Scale: &skipperpb.Scale{MaxInstances: 10, TargetCpuUsageMilli: 500, TargetInFlightRequests: 50},
	}
}

func (w fleetWorld) functionsOf() []*skipperpb.Function {
	out := make([]*skipperpb.Function, w.functions)
	for i := range out {
		out[i] = w.function(i)
	}
	return out
}

// uid of the i-th pod.
func (fleetWorld) uid(i int) string { return fmt.Sprintf("7d9c4a10-3b6e-4c1f-9a52-%012x", i) }

func fleetDeployment(i int) string { return fmt.Sprintf("pool-%d", i%fleetDeployments) }

func fleetSet(i int) string { return fleetDeployment(i) + "-6d4cf56db6" }

// objects are the pods and their ReplicaSets.
func (w fleetWorld) objects(now time.Time) []apistub.Object {
	began := metav1.NewTime(now.Add(-fleetAge).Truncate(time.Second))
	template := fleetTemplate(began)
	var out []apistub.Object
	for d := range fleetDeployments {
		out = append(out, fleetReplicaSet(d, w.pods/fleetDeployments, began))
	}
	for i := range w.pods {
		out = append(out, w.pod(i, template, began))
	}
	return out
}

func fleetReplicaSet(d, replicas int, began metav1.Time) *appsv1.ReplicaSet {
	n := int32(replicas) //nolint:gosec // as many as a cluster has
	labels := map[string]string{pool.LabelDeployment: fleetDeployment(d), "pod-template-hash": "6d4cf56db6"}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fleetNamespace, Name: fleetSet(d), UID: types.UID(fmt.Sprintf("set-%d", d)), CreationTimestamp: began,
			Labels: labels, Annotations: map[string]string{"deployment.kubernetes.io/revision": "1"},
		},
		Spec:   appsv1.ReplicaSetSpec{Replicas: &n, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}},
		Status: appsv1.ReplicaSetStatus{Replicas: n, ReadyReplicas: n},
	}
}

// pod shares with the others what is the same in all.
func (w fleetWorld) pod(i int, template *corev1.Pod, began metav1.Time) *corev1.Pod {
	p := *template
	p.Name, p.UID = fmt.Sprintf("%s-%05x", fleetSet(i), i), types.UID(w.uid(i))
	p.Labels = map[string]string{pool.LabelDeployment: fleetDeployment(i), "pod-template-hash": "6d4cf56db6", "app.kubernetes.io/part-of": "functions"}
	p.Annotations = map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "9090", "cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
	p.Spec.NodeName = fmt.Sprintf("node-%04d", i/50)
	p.Status.PodIP = fmt.Sprintf("10.%d.%d.%d", 64+i>>16, i>>8&0xff, i&0xff)
	p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
	if i < w.functions {
		w.assign(i, &p, began)
		return &p
	}
	yes := true
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: fleetSet(i), UID: types.UID(fmt.Sprintf("set-%d", i%fleetDeployments)), Controller: &yes, BlockOwnerDeletion: &yes}}
	return &p
}

// assign writes what the claim and the assignment leave on a pod.
func (w fleetWorld) assign(i int, p *corev1.Pod, began metav1.Time) {
	f := w.function(i)
	at := pool.FormatTime(began.Add(time.Minute))
	p.Labels[pool.LabelTenant] = f.GetTenant()
	for k, v := range map[string]string{
		pool.AnnotationTenant: f.GetTenant(), pool.AnnotationFunction: string(fn.Marshal(f)), pool.AnnotationAssignedAt: at,
		pool.AnnotationReadyAt: at, pool.AnnotationReadyRestarts: "0", pool.AnnotationReplicaSet: fleetSet(i),
	} {
		p.Annotations[k] = v
	}
}

// fleetTemplate is a pod as clusters have it: a function and a helper beside it,
// their probes and volumes, and who owns which field.
func fleetTemplate(began metav1.Time) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, CreationTimestamp: began, ManagedFields: fleetManagers(began)}}
	p.Spec = corev1.PodSpec{
		Containers:         []corev1.Container{fleetContainer("function", 8080), fleetContainer("metrics", 9090)},
		RestartPolicy:      corev1.RestartPolicyAlways,
		DNSPolicy:          corev1.DNSClusterFirst,
		ServiceAccountName: "default",
		SchedulerName:      corev1.DefaultSchedulerName,
		Volumes: []corev1.Volume{{Name: "kube-api-access-x2x9z", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
		}}}},
		Tolerations: []corev1.Toleration{
			{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
			{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
		},
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "192.168.0.7", StartTime: &began, QOSClass: corev1.PodQOSBurstable}
	for _, c := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: began})
	}
	yes := true
	for _, c := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image + "@sha256:1d1c9c8a5f0e6f7c3f6d2f1e5f9f1b8a7c6d5e4f3a2b1c0d9e8f7a6b5c4d3e2f", Ready: true, Started: &yes,
			ContainerID: "containerd://9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a0",
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}},
		})
	}
	return p
}

func fleetContainer(name string, port int32) corev1.Container {
	c := corev1.Container{
		Name: name, Image: "images.example/functions/" + name + ":v1.2.3", ImagePullPolicy: corev1.PullIfNotPresent,
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: port, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
		},
		ReadinessProbe: &corev1.Probe{PeriodSeconds: 5, FailureThreshold: 3, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(port), Scheme: corev1.URISchemeHTTP},
		}},
		VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access-x2x9z", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
	}
	for i := range 8 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: "a value of some length"})
	}
	return c
}

// fleetManagers are the two entries that every pod of a Deployment has.
func fleetManagers(began metav1.Time) []metav1.ManagedFieldsEntry {
	const container = `{".":{},"f:env":{".":{},"k:{\"name\":\"SETTING_0\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{},"f:readinessProbe":{},"f:resources":{}}`
	made := `{"f:metadata":{"f:annotations":{},"f:labels":{},"f:ownerReferences":{}},"f:spec":{"f:containers":{"k:{\"name\":\"function\"}":` + container + `,"k:{\"name\":\"metrics\"}":` + container + `},"f:dnsPolicy":{},"f:restartPolicy":{}}}`
	const ran = `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:phase":{},"f:podIP":{},"f:startTime":{}}}`
	entry := func(manager, fields, part string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &began, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields), Subresource: part}
	}
	return []metav1.ManagedFieldsEntry{entry("kube-controller-manager", made, ""), entry("kubelet", ran, "status")}
}

// metrics are what the assigned pods use now: half of their target.
func (w fleetWorld) metrics(namespace string) []apistub.Object {
	if namespace != fleetNamespace {
		return nil
	}
	now := metav1.Now()
	use := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("125m"), corev1.ResourceMemory: resource.MustParse("48Mi")}
	out := make([]apistub.Object, w.functions)
	for i := range out {
		out[i] = &metricsv1beta1.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%05x", fleetSet(i), i), CreationTimestamp: now, Labels: map[string]string{
				pool.LabelDeployment: fleetDeployment(i), pool.LabelTenant: fmt.Sprintf("tenant-%05d", i), "pod-template-hash": "6d4cf56db6",
			}},
			Timestamp: now, Window: metav1.Duration{Duration: 15 * time.Second},
			Containers: []metricsv1beta1.ContainerMetrics{{Name: "function", Usage: use}, {Name: "metrics", Usage: use}},
		}
	}
	return out
}

// controller is the pod of a controller at ip.
func (fleetWorld) controller(ip string, ready bool) *corev1.Pod {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetOwn, Name: "controller-" + ip, UID: types.UID(ip), CreationTimestamp: metav1.Now(), Labels: map[string]string{"app.kubernetes.io/name": "skipper-controller"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "controller"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}},
	}
}
