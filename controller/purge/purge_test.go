package purge

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"skipper/controller/provision"
)

var layout = provision.Layout{System: "system", Functions: []string{"functions"}, Gateways: []string{"shop"}}

var sorted = cmpopts.SortSlices(func(a, b string) bool { return a < b })

func meta(namespace, name string, labels, annotations map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Labels: labels, Annotations: annotations}
}

func podOf(namespace, name, tenant, function, owner string) *corev1.Pod {
	m := meta(namespace, name, map[string]string{"skipper/deployment": "echo"}, map[string]string{})
	if tenant != "" {
		m.Labels["skipper/tenant"] = tenant
	}
	if function != "" {
		m.Annotations["skipper/function"] = function
	}
	if owner != "" {
		yes := true
		m.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: owner, Controller: &yes}}
	}
	return &corev1.Pod{ObjectMeta: m}
}

// installed is a cluster after an uninstall, with strangers beside what is ours.
func installed() []runtime.Object {
	out := []runtime.Object{
		podOf("functions", "assigned", "t1", "{}", ""),
		podOf("functions", "free", "", "", "rs"),
		podOf("functions", "letting-go", "t1", "{}", "rs"),
		podOf("functions", "by-hand", "t1", "", ""),
		podOf("elsewhere", "other", "t1", "{}", ""),
		&coordinationv1.Lease{ObjectMeta: meta("system", "skipper-extproc-1", map[string]string{"app.kubernetes.io/component": "skipper-extproc"}, nil)},
		&coordinationv1.Lease{ObjectMeta: meta("system", "leader", nil, nil)},
		&corev1.ConfigMap{ObjectMeta: meta("functions", "skipper-paseto-public-key", nil, nil)},
		&corev1.ConfigMap{ObjectMeta: meta("functions", "kube-root-ca.crt", nil, nil)},
		&corev1.Secret{ObjectMeta: meta("system", "mine", nil, nil)},
		&corev1.Secret{ObjectMeta: meta("shop", "skipper-tls-envoy", nil, nil)},
		&corev1.Secret{ObjectMeta: meta("shop", "mine", nil, nil)},
	}
	for _, name := range []string{"skipper-paseto-key", "skipper-tls-authority", "skipper-tls-operator"} {
		out = append(out, &corev1.Secret{ObjectMeta: meta("system", name, nil, nil)})
	}
	return out
}

func planned(t *testing.T, kube *fake.Clientset, keepKeys bool) []Item {
	t.Helper()
	found, err := Find(t.Context(), kube, layout)
	if err != nil {
		t.Fatal(err)
	}
	items, err := Plan(found, keepKeys)
	if err != nil {
		t.Fatal(err)
	}
	return items
}

func lines(items []Item) []string {
	var out []string
	for _, i := range items {
		verb := "keep "
		if i.Delete {
			verb = "delete "
		}
		out = append(out, verb+i.String()+": "+i.Reason)
	}
	return out
}

func TestPlan(t *testing.T) {
	want := []string{
		"delete Pod functions/assigned: is assigned to tenant t1, and nothing owns it",
		"keep Pod functions/by-hand: has a tenant, but was not claimed by Skipper",
		"keep Pod functions/letting-go: still belongs to ReplicaSet rs",
		"delete Lease system/skipper-extproc-1: says which tables an extproc has",
		"delete ConfigMap functions/skipper-paseto-public-key: is of no use without Skipper",
		"delete Secret system/skipper-paseto-key: signs assignments: another installation makes its own",
		"delete Secret system/skipper-tls-authority: is of no use without Skipper",
		"delete Secret system/skipper-tls-operator: is of no use without Skipper",
		"delete Secret shop/skipper-tls-envoy: is of no use without Skipper",
	}
	if d := cmp.Diff(want, lines(planned(t, fake.NewClientset(installed()...), false))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, i := range planned(t, fake.NewClientset(installed()...), true) {
		if key := i.Kind == secret || i.Kind == configMap; key == i.Delete && key {
			t.Errorf("with kept keys %s is deleted", i)
		}
	}
}

// What Plan is told of need not come from Find.
func TestPlanKeepsStrangers(t *testing.T) {
	items, err := Plan([]Object{
		{Kind: pod, Name: "free", Labels: map[string]string{"skipper/deployment": "echo"}},
		{Kind: leaseKind, Name: "leader"},
		{Kind: secret, Name: "mine"},
	}, false)
	if err != nil || len(items) != 3 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	for _, i := range items {
		if i.Delete {
			t.Errorf("%s is deleted", i)
		}
	}
}

func TestRunningControllersAreInTheWay(t *testing.T) {
	zero, two := int32(0), int32(2)
	for _, row := range []struct {
		replicas *int32
		refused  bool
	}{{nil, true}, {&two, true}, {&zero, false}} {
		d := &appsv1.Deployment{ObjectMeta: meta("system", "skipper-controller", nil, nil), Spec: appsv1.DeploymentSpec{Replicas: row.replicas}}
		found, err := Find(t.Context(), fake.NewClientset(d), layout)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Plan(found, false)
		if refused := err != nil && strings.Contains(err.Error(), "uninstall Skipper first"); refused != row.refused {
			t.Errorf("%v replicas: %v", row.replicas, err)
		}
	}
}

// Controllers of another system namespace than the named one use the same pods.
func TestRunningControllersElsewhereAreInTheWay(t *testing.T) {
	two := int32(2)
	running := func(namespace string) runtime.Object {
		return &appsv1.Deployment{ObjectMeta: meta(namespace, "skipper-controller", nil, nil), Spec: appsv1.DeploymentSpec{Replicas: &two}}
	}
	bound := func(functions, account, system string) runtime.Object {
		return &rbacv1.RoleBinding{
			ObjectMeta: meta(functions, "for-"+account+"-"+system, nil, nil),
			Subjects:   []rbacv1.Subject{{Kind: "User", Name: "somebody"}, {Kind: "ServiceAccount", Name: account, Namespace: system}},
		}
	}
	for name, row := range map[string]struct {
		more    []runtime.Object
		refused bool
	}{
		"they claim pods here":                {[]runtime.Object{running("other"), bound("functions", "skipper-controller", "other")}, true},
		"they claim pods in other namespaces": {[]runtime.Object{running("other"), bound("elsewhere", "skipper-controller", "other")}, false},
		"only the binding is left":            {[]runtime.Object{bound("functions", "skipper-controller", "other")}, false},
		"somebody else may do something":      {[]runtime.Object{running("other"), bound("functions", "builder", "other")}, false},
		"one of two":                          {[]runtime.Object{running("z"), bound("functions", "skipper-controller", "a"), bound("functions", "skipper-controller", "z")}, true},
	} {
		found, err := Find(t.Context(), fake.NewClientset(append(installed(), row.more...)...), layout)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = Plan(found, false); (err != nil) != row.refused {
			t.Errorf("%s: %v, want it refused: %v", name, err, row.refused)
		}
	}
}

// After it was carried out only strangers are left, and a second time nothing happens.
func TestCarry(t *testing.T) {
	kube := fake.NewClientset(installed()...)
	items := planned(t, kube, false)
	for range 2 {
		if err := Carry(t.Context(), kube, items); err != nil {
			t.Fatal(err)
		}
	}
	pods, err := kube.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, p := range pods.Items {
		left = append(left, p.Namespace+"/"+p.Name)
	}
	if d := cmp.Diff([]string{"elsewhere/other", "functions/by-hand", "functions/free", "functions/letting-go"}, left, sorted); d != "" {
		t.Errorf("pods (-want +got):\n%s", d)
	}
	secrets, err := kube.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(secrets.Items) != 2 {
		t.Errorf("%d secrets are left, %v; want the two strangers", len(secrets.Items), err)
	}
	for _, i := range planned(t, kube, false) {
		if i.Delete {
			t.Errorf("%s is still to be deleted", i)
		}
	}
	deletesByUID(t, kube)
}

// deletesByUID checks that no request would delete what has only the same name.
func deletesByUID(t *testing.T, kube *fake.Clientset) {
	t.Helper()
	for _, a := range kube.Actions() {
		if d, ok := a.(interface{ GetDeleteOptions() metav1.DeleteOptions }); ok && (d.GetDeleteOptions().Preconditions == nil || *d.GetDeleteOptions().Preconditions.UID == "") {
			t.Errorf("%s of %s would delete whatever has the name", a.GetVerb(), a.GetResource().Resource)
		}
	}
}
