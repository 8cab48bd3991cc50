package pools

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"skipper/cmd/skipper/internal/finding"
	"skipper/controller/pool"
)

// Pool is how full one pool is. Numbers are of pods that have not finished.
type Pool struct {
	Namespace  string `json:"namespace"`
	Deployment string `json:"deployment"`
	// Replicas is how many warm pods the Deployment keeps.
	Replicas int32 `json:"replicas"`
	// Warm pods can be claimed; Starting ones cannot yet.
	Warm     int `json:"warm"`
	Starting int `json:"starting"`
	// Assigned pods belong to a tenant, Draining ones among them.
	Assigned int `json:"assigned"`
	Draining int `json:"draining"`
	Tenants  int `json:"tenants"`
	// Port and Protocol that its pods are spoken to by; 0 and empty where the
	// template does not tell.
	Port     uint16            `json:"port"`
	Protocol string            `json:"protocol"`
	Findings []finding.Finding `json:"findings"`
}

// IsPool tells whether a Deployment is meant as a pool: its pods carry the label
// or one of the annotations, or its selector leaves tenants' pods out.
func IsPool(d *appsv1.Deployment) bool {
	t := d.Spec.Template
	if t.Labels[pool.LabelDeployment] != "" || t.Annotations[pool.AnnotationPort] != "" || t.Annotations[pool.AnnotationProtocol] != "" {
		return true
	}
	return d.Spec.Selector != nil && !selectsTenants(d) && selects(d, nil)
}

// Of lists the pools among the Deployments with what their pods are, sorted by
// namespace and name. Pods are those with label skipper/deployment.
func Of(deployments []appsv1.Deployment, pods []corev1.Pod) []Pool {
	members := map[[2]string][]pool.Pod{}
	parser := pool.NewParser(len(pods))
	for i := range pods {
		p := pool.FromPod(&pods[i], parser)
		k := [2]string{p.Namespace, p.Deployment}
		members[k] = append(members[k], p)
	}
	var out []Pool
	for i := range deployments {
		d := &deployments[i]
		if IsPool(d) {
			out = append(out, of(d, members[[2]string{d.Namespace, d.Name}]))
		}
	}
	slices.SortFunc(out, func(a, b Pool) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Deployment, b.Deployment))
	})
	return out
}

func of(d *appsv1.Deployment, pods []pool.Pod) Pool {
	model := modelOf(d)
	out := Pool{Namespace: d.Namespace, Deployment: d.Name, Replicas: replicas(d), Port: model.Port, Protocol: string(model.Protocol), Findings: append([]finding.Finding{}, Check(d)...)}
	tenants := map[string]bool{}
	for _, p := range pods {
		switch s := p.State(); {
		case s == pool.Dead || s == pool.Terminating:
		case s == pool.Unassigned && p.Ready && p.Addr() != "" && p.Problem == "":
			out.Warm++
		case s == pool.Unassigned:
			out.Starting++
		default:
			out.Assigned++
			tenants[p.Tenant] = true
			if s == pool.Draining {
				out.Draining++
			}
		}
	}
	out.Tenants = len(tenants)
	out.Findings = append(out.Findings, fullness(d, out)...)
	finding.Sort(out.Findings)
	return out
}

// replicas is what the API means by none.
func replicas(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

// modelOf reads the template as the controller will read its pods.
func modelOf(d *appsv1.Deployment) pool.Pod {
	t := d.Spec.Template
	p := &corev1.Pod{Spec: t.Spec}
	p.Labels = map[string]string{pool.LabelDeployment: t.Labels[pool.LabelDeployment]}
	p.Annotations = map[string]string{}
	for _, k := range []string{pool.AnnotationPort, pool.AnnotationProtocol} {
		if v, ok := t.Annotations[k]; ok {
			p.Annotations[k] = v
		}
	}
	return pool.FromPod(p, pool.NewParser(1))
}
