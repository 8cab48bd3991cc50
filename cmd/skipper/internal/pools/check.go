package pools

import (
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"skipper/cmd/skipper/internal/finding"
	"skipper/controller/pool"
)

// check is the word by which findings of this package are told from others.
const check = "pool"

// report collects findings about one Deployment.
type report struct {
	subject string
	out     []finding.Finding
}

func (r *report) add(s finding.Severity, what, why, do string) {
	r.out = append(r.out, finding.Finding{Severity: s, Check: check, Subject: r.subject, What: what, Why: why, Do: do})
}

// Check says what is wrong with a pool's Deployment; see docs/functions.md for
// the rules.
func Check(d *appsv1.Deployment) []finding.Finding {
	r := &report{subject: "deployment " + d.Namespace + "/" + d.Name}
	checkLabel(r, d)
	if selectsTenants(d) {
		r.add(finding.Problem, "its selector also takes pods that have a tenant",
			"a claimed pod stays in the ReplicaSet, which makes no fresh one: the pool runs dry, and requests end with 503 hold_timeout",
			"add {key: skipper/tenant, operator: DoesNotExist} to spec.selector.matchExpressions; a selector cannot be changed, so delete the Deployment with --cascade=orphan and create it anew")
	}
	checkMarks(r, d)
	if d.Spec.Template.Spec.HostNetwork {
		r.add(finding.Problem, "its pods use hostNetwork", "such pods are never claimed, because they share the address of their node", "remove hostNetwork from the pod template")
	}
	if p := modelOf(d).Problem; p != "" {
		r.add(finding.Problem, p, "pods without a port or a protocol that is known are never claimed", "change the pod template as said")
	}
	checkProbe(r, d)
	return r.out
}

func checkLabel(r *report, d *appsv1.Deployment) {
	const why = "pods are found by this label: a request that names this Deployment ends with 404 deployment_not_found"
	do := fmt.Sprintf("set label %s: %s on the pod template, and in the selector", pool.LabelDeployment, d.Name)
	switch v := d.Spec.Template.Labels[pool.LabelDeployment]; v {
	case d.Name:
	case "":
		r.add(finding.Problem, "its pods have no label "+pool.LabelDeployment, why, do)
	default:
		r.add(finding.Problem, fmt.Sprintf("its pods have label %s: %s", pool.LabelDeployment, v), why, do)
	}
}

// checkMarks: what only a claim may write.
func checkMarks(r *report, d *appsv1.Deployment) {
	var found []string
	if _, ok := d.Spec.Template.Labels[pool.LabelTenant]; ok {
		found = append(found, "label "+pool.LabelTenant)
	}
	for _, k := range []string{
		pool.AnnotationTenant, pool.AnnotationFunction, pool.AnnotationAssignedAt, pool.AnnotationReadyAt,
		pool.AnnotationReplicaSet, pool.AnnotationDrainingAt, pool.AnnotationReadyRestarts,
	} {
		if _, ok := d.Spec.Template.Annotations[k]; ok {
			found = append(found, "annotation "+k)
		}
	}
	if len(found) > 0 {
		r.add(finding.Problem, fmt.Sprintf("its pod template has %v", found), "a pod that looks as if it were somebody's is never claimed", "remove them from the template: the claim sets them")
	}
}

func checkProbe(r *report, d *appsv1.Deployment) {
	for i := range d.Spec.Template.Spec.Containers {
		if d.Spec.Template.Spec.Containers[i].ReadinessProbe != nil {
			return
		}
	}
	r.add(finding.Warning, "no container has a readiness probe", "a pod may be claimed before it listens; its assignment fails then, and it is deleted", "add a readiness probe: GET /healthz, each second")
}

// fullness is about what the pool has now.
func fullness(d *appsv1.Deployment, p Pool) []finding.Finding {
	r := &report{subject: "deployment " + d.Namespace + "/" + d.Name}
	switch {
	case p.Replicas == 0:
		r.add(finding.Warning, "it keeps no warm pods", "a function without an instance gets none: its requests end with 503 hold_timeout", "set spec.replicas to the number of pods that should wait")
	case p.Warm == 0:
		r.add(finding.Problem, fmt.Sprintf("none of its pods can be claimed (%d wanted, %d starting)", p.Replicas, p.Starting),
			"requests of new tenants wait, and end with 503 hold_timeout", "look at its pods: kubectl -n "+d.Namespace+" describe pods -l "+pool.LabelDeployment+"="+d.Name)
	}
	return r.out
}

// selectsTenants: a pod of the template that was claimed would still be taken.
func selectsTenants(d *appsv1.Deployment) bool {
	return selects(d, labels.Set{pool.LabelTenant: "any"})
}

// selects tells whether the selector takes a pod of the template with more labels.
func selects(d *appsv1.Deployment, more labels.Set) bool {
	s, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return false // the API server admits no such Deployment
	}
	l := labels.Set(maps.Clone(d.Spec.Template.Labels))
	if l == nil {
		l = labels.Set{}
	}
	maps.Copy(l, more)
	return s.Matches(l)
}

// Findings are those of all pools.
func Findings(all []Pool) []finding.Finding {
	var out []finding.Finding
	for _, p := range all {
		out = append(out, p.Findings...)
	}
	return slices.Clip(out)
}
