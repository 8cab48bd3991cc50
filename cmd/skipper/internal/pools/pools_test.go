package pools

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/cmd/skipper/internal/finding"
	"skipper/controller/pool"
)

// good is a pool as docs/functions.md describes it.
func good() *appsv1.Deployment {
	replicas := int32(2)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "echo"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{
				MatchLabels:      map[string]string{pool.LabelDeployment: "echo"},
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: pool.LabelTenant, Operator: metav1.LabelSelectorOpDoesNotExist}},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{pool.LabelDeployment: "echo"}, Annotations: map[string]string{pool.AnnotationPort: "http"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "echo", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}, ReadinessProbe: &corev1.Probe{},
				}}},
			},
		},
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		change func(*appsv1.DeploymentSpec)
		want   string // severity and a part of what
	}{
		{"as documented", func(*appsv1.DeploymentSpec) {}, ""},
		{"selector by value", func(s *appsv1.DeploymentSpec) {
			s.Selector.MatchExpressions[0] = metav1.LabelSelectorRequirement{Key: pool.LabelTenant, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"other"}}
		}, "problem: its selector also takes"},
		{"no expression", func(s *appsv1.DeploymentSpec) { s.Selector.MatchExpressions = nil }, "problem: its selector also takes"},
		{"no label", func(s *appsv1.DeploymentSpec) { s.Template.Labels = nil }, "problem: its pods have no label"},
		{"another's label", func(s *appsv1.DeploymentSpec) { s.Template.Labels[pool.LabelDeployment] = "ecko" }, "problem: its pods have label skipper/deployment: ecko"},
		{"tenant label", func(s *appsv1.DeploymentSpec) { s.Template.Labels[pool.LabelTenant] = "acme" }, "problem: its pod template has [label skipper/tenant]"},
		{"claim's annotations", func(s *appsv1.DeploymentSpec) {
			s.Template.Annotations[pool.AnnotationReadyAt], s.Template.Annotations[pool.AnnotationFunction] = "x", "y"
		}, "problem: its pod template has [annotation skipper/function annotation skipper/ready-at]"},
		{"host network", func(s *appsv1.DeploymentSpec) { s.Template.Spec.HostNetwork = true }, "problem: its pods use hostNetwork"},
		{"port that is none", func(s *appsv1.DeploymentSpec) { s.Template.Annotations[pool.AnnotationPort] = "grpc" }, "problem: annotation skipper/port is"},
		{"no port", func(s *appsv1.DeploymentSpec) {
			delete(s.Template.Annotations, pool.AnnotationPort)
			s.Template.Spec.Containers[0].Ports = nil
		}, "problem: no container declares a TCP port"},
		{"protocol", func(s *appsv1.DeploymentSpec) { s.Template.Annotations[pool.AnnotationProtocol] = "http3" }, "problem: annotation skipper/protocol is"},
		{"no probe", func(s *appsv1.DeploymentSpec) { s.Template.Spec.Containers[0].ReadinessProbe = nil }, "warning: no container has a readiness probe"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := good()
			row.change(&d.Spec)
			found := Check(d)
			if row.want == "" && len(found) == 0 {
				return
			}
			if len(found) != 1 || row.want == "" {
				t.Fatalf("found %+v, want one: %q", found, row.want)
			}
			f := found[0]
			if got := string(f.Severity) + ": " + f.What; !strings.HasPrefix(got, row.want) || f.Why == "" || f.Do == "" || f.Subject != "deployment prod/echo" {
				t.Errorf("found %+v, want %q", f, row.want)
			}
		})
	}
}

func TestIsPool(t *testing.T) {
	t.Parallel()
	unlabelled := good()
	unlabelled.Spec.Template.Labels = map[string]string{"app": "x"}
	unlabelled.Spec.Template.Annotations = nil
	unlabelled.Spec.Selector.MatchLabels = unlabelled.Spec.Template.Labels
	other := unlabelled.DeepCopy()
	other.Spec.Selector.MatchExpressions = nil
	for name, row := range map[string]struct {
		d    *appsv1.Deployment
		want bool
	}{"pool": {good(), true}, "selector alone": {unlabelled, true}, "another Deployment": {other, false}, "empty": {&appsv1.Deployment{}, false}} {
		if got := IsPool(row.d); got != row.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// pod of the pool; marks are set as a claim and its followers set them.
func pod(name string, ready bool, marks ...string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name, Labels: map[string]string{pool.LabelDeployment: "echo"}, Annotations: map[string]string{}}}
	p.Spec, p.Status.PodIP = good().Spec.Template.Spec, "10.0.0.1"
	if ready {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	for _, m := range marks {
		if m != pool.AnnotationDrainingAt {
			p.Labels[pool.LabelTenant] = m
		} else {
			p.Annotations[m] = "2026-08-01T12:00:00Z"
		}
	}
	return p
}

func TestOfCountsPods(t *testing.T) {
	t.Parallel()
	deleted, failed := pod("f", true), pod("g", true)
	deleted.DeletionTimestamp, failed.Status.Phase = &metav1.Time{}, corev1.PodFailed
	got := Of([]appsv1.Deployment{*good(), {ObjectMeta: metav1.ObjectMeta{Name: "no-pool"}}}, []corev1.Pod{
		pod("a", true), pod("b", false), pod("c", true, "acme"), pod("d", true, "acme", pool.AnnotationDrainingAt), pod("e", true, "zenith"), deleted, failed,
	})
	want := []Pool{{Namespace: "prod", Deployment: "echo", Replicas: 2, Warm: 1, Starting: 1, Assigned: 3, Draining: 1, Tenants: 2, Port: 8080, Protocol: "http1"}}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
}

func TestFullness(t *testing.T) {
	t.Parallel()
	none := good()
	none.Spec.Replicas = new(int32)
	for _, row := range []struct {
		d    *appsv1.Deployment
		pods []corev1.Pod
		want finding.Severity
	}{{good(), []corev1.Pod{pod("a", true)}, ""}, {good(), []corev1.Pod{pod("a", false)}, finding.Problem}, {none, nil, finding.Warning}} {
		all := Findings(Of([]appsv1.Deployment{*row.d}, row.pods))
		if len(all) > 1 || len(all) == 1 && all[0].Severity != row.want || len(all) == 0 && row.want != "" {
			t.Errorf("found %+v, want %q", all, row.want)
		}
	}
}
