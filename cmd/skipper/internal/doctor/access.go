package doctor

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// right is a row of what somebody needs.
type right struct {
	group, resource string
	verbs           []string
	effect          string
}

// systemRights and functionRights are those of the controllers in their own
// namespace and in each function namespace: the Roles of the manifests.
func systemRights() []right {
	return []right{
		{"", "pods", []string{"list", "watch"}, "controllers do not see each other, so there is no ring"},
		{"coordination.k8s.io", "leases", []string{"get", "list", "watch", "create", "update", "delete"}, "controllers that start after all others know no extproc, and pods wait before they are claimed"},
	}
}

func functionRights() []right {
	return []right{
		{"", "pods", []string{"list", "watch", "patch", "delete"}, "pods cannot be seen, claimed, drained or given back"},
		{"apps", "replicasets", []string{"list", "watch"}, "which pods are stale is not known, and pods of old templates are claimed"},
		{"", "events", []string{"create", "patch"}, "kubectl describe pod does not show what was done to a pod, and why"},
		{"metrics.k8s.io", "pods", []string{"list"}, "targets for CPU and memory have no say"},
	}
}

// ownRights are those of the person at the command line.
func ownRights() (system, function []right) {
	system = []right{
		{"", "secrets", []string{"get"}, "no certificate for calls to controllers"},
		{"", "pods", []string{"list"}, "controllers are not found"},
		{"", "pods/portforward", []string{"create"}, "controllers are not reached"},
	}
	function = []right{
		{"", "pods", []string{"list", "patch"}, "skipper pools and drain do not work"},
		{"apps", "deployments", []string{"list"}, "skipper pools does not work"},
	}
	return system, function
}

// access asks the API server about all of them.
func (x *collector) access(ctx context.Context) {
	account, err := x.account(ctx)
	if err != nil {
		x.gap("access", "the controllers' service account", err)
	}
	ownSystem, ownFunction := ownRights()
	x.review(ctx, account, x.System, systemRights())
	x.review(ctx, You, x.System, ownSystem)
	for _, ns := range x.out.Namespaces {
		x.review(ctx, account, ns, functionRights())
		x.review(ctx, You, ns, ownFunction)
	}
}

// account is the user that the controllers are to the API server; "": unknown.
func (x *collector) account(ctx context.Context) (string, error) {
	pods, err := x.Kube.CoreV1().Pods(x.System).List(ctx, metav1.ListOptions{LabelSelector: x.Selector})
	if err != nil {
		return "", err
	}
	for i := range pods.Items {
		if name := pods.Items[i].Spec.ServiceAccountName; name != "" {
			return "system:serviceaccount:" + x.System + ":" + name, nil
		}
	}
	return "", fmt.Errorf("no controller runs in namespace %s with labels %s", x.System, x.Selector)
}

// review asks until one question fails: so would the others.
func (x *collector) review(ctx context.Context, who, namespace string, rights []right) {
	for _, r := range rights {
		for _, verb := range r.verbs {
			if who == "" {
				return
			}
			a := Access{Who: who, Namespace: namespace, Verb: verb, Group: r.group, Resource: r.resource, For: r.effect}
			allowed, err := x.allowed(ctx, a)
			if err != nil {
				x.gap("access", who+" in namespace "+namespace, err)
				return
			}
			a.Allowed = allowed
			x.out.Access = append(x.out.Access, a)
		}
	}
}

func (x *collector) allowed(ctx context.Context, a Access) (bool, error) {
	resource, sub := a.Resource, ""
	if a.Resource == "pods/portforward" {
		resource, sub = "pods", "portforward"
	}
	attributes := &authorizationv1.ResourceAttributes{Namespace: a.Namespace, Verb: a.Verb, Group: a.Group, Resource: resource, Subresource: sub}
	if a.Who == You {
		r, err := x.Kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes},
		}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return r.Status.Allowed, nil
	}
	r, err := x.Kube.AuthorizationV1().LocalSubjectAccessReviews(a.Namespace).Create(ctx, &authorizationv1.LocalSubjectAccessReview{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: a.Who, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + x.System, "system:authenticated"}, ResourceAttributes: attributes,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return r.Status.Allowed, nil
}
