//go:build e2e

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// may is one thing that an account can do; a subresource stands behind a slash.
type may struct{ verb, group, resource, namespace string }

// The controller needs these, and none of the others.
func TestControllerHasTheRightsItNeeds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	needed := []may{
		{"list", "", "pods", functionNamespace},
		{"watch", "", "pods", functionNamespace},
		{"patch", "", "pods", functionNamespace},
		{"delete", "", "pods", functionNamespace},
		{"list", "apps", "replicasets", functionNamespace},
		{"watch", "apps", "replicasets", functionNamespace},
		{"list", "", "pods", systemNamespace},
		{"watch", "", "pods", systemNamespace},
	}
	denied := []may{
		{"create", "", "pods", functionNamespace},
		{"create", "", "pods/exec", functionNamespace},
		{"get", "", "secrets", functionNamespace},
		{"list", "", "secrets", functionNamespace},
		{"get", "", "configmaps", functionNamespace},
		{"delete", "apps", "deployments", functionNamespace},
		{"patch", "apps", "deployments", functionNamespace},
		{"delete", "apps", "replicasets", functionNamespace},
		{"create", "", "serviceaccounts/token", functionNamespace},
		{"get", "", "secrets", systemNamespace},
		{"list", "", "secrets", systemNamespace},
		{"create", "", "pods", systemNamespace},
		{"delete", "", "pods", systemNamespace},
		{"patch", "", "pods", systemNamespace},
		{"delete", "apps", "deployments", systemNamespace},
		{"list", "", "pods", metav1.NamespaceDefault},
		{"list", "", "pods", metav1.NamespaceAll},
		{"list", "", "nodes", metav1.NamespaceAll},
		{"list", "", "namespaces", metav1.NamespaceAll},
		{"impersonate", "", "users", metav1.NamespaceAll},
		{"create", "rbac.authorization.k8s.io", "clusterrolebindings", metav1.NamespaceAll},
	}
	controller := w.actingAs(t, systemNamespace, controllerName)
	for _, m := range needed {
		wantRight(t, controller, m, true)
	}
	for _, m := range denied {
		wantRight(t, controller, m, false)
	}
}

// In namespaces that are not its business, the controller may do what every account may, and no more.
func TestControllerHasNoRightsElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.actingAs(t, systemNamespace, controllerName)
	anybody := w.actingAs(t, systemNamespace, "e2e-nobody")
	for _, namespace := range []string{"kube-system", "kube-public", metav1.NamespaceDefault} {
		if diff := cmp.Diff(rulesIn(t, anybody, namespace), rulesIn(t, controller, namespace)); diff != "" {
			t.Errorf("rights in %s beside those of every account (+):\n%s", namespace, diff)
		}
	}
}

// The gateway has no account in the API server at all.
func TestGatewayHasNoToken(t *testing.T) {
	t.Parallel()
	pod := newWorld(t).systemPod(t, gatewayName)
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.ServiceAccountToken != nil {
				t.Errorf("the gateway mounts a token of its service account as %s", v.Name)
			}
		}
	}
}

// actingAs is a client with the rights of a service account.
func (w *world) actingAs(t *testing.T, namespace, account string) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: fmt.Sprintf("system:serviceaccount:%s:%s", namespace, account),
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return kube
}

func wantRight(t *testing.T, kube kubernetes.Interface, m may, want bool) {
	t.Helper()
	resource, sub, _ := strings.Cut(m.resource, "/")
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: m.verb, Group: m.group, Namespace: m.namespace, Resource: resource, Subresource: sub,
		},
	}}
	got, err := kube.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Status.Allowed != want {
		t.Errorf("%+v: allowed %t, want %t: %s", m, got.Status.Allowed, want, got.Status.Reason)
	}
}

// rulesIn lists what the account may do in a namespace.
func rulesIn(t *testing.T, kube kubernetes.Interface, namespace string) []authorizationv1.ResourceRule {
	t.Helper()
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	got, err := kube.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Status.Incomplete || len(got.Status.ResourceRules) == 0 {
		t.Errorf("the rules in %s are incomplete: %+v", namespace, got.Status)
	}
	slices.SortFunc(got.Status.ResourceRules, func(a, b authorizationv1.ResourceRule) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	return got.Status.ResourceRules
}
