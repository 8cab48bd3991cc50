package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8stesting "k8s.io/client-go/testing"
)

// permit answers reviews of access as an API server would; refused are
// "namespace verb resource".
func permit(g *stage, refused ...string) {
	allowed := func(a *authorizationv1.ResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
		return authorizationv1.SubjectAccessReviewStatus{Allowed: !slices.Contains(refused, a.Namespace+" "+a.Verb+" "+a.Resource)}
	}
	g.kube.PrependReactor("create", "localsubjectaccessreviews", func(a k8stesting.Action) (bool, runtime.Object, error) {
		r := a.(k8stesting.CreateAction).GetObject().(*authorizationv1.LocalSubjectAccessReview)
		r.Status = allowed(r.Spec.ResourceAttributes)
		return true, r, nil
	})
	g.kube.PrependReactor("create", "selfsubjectaccessreviews", func(a k8stesting.Action) (bool, runtime.Object, error) {
		r := a.(k8stesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
		r.Status.Allowed = true
		return true, r, nil
	})
	g.kube.Resources = []*metav1.APIResourceList{{GroupVersion: "metrics.k8s.io/v1beta1"}}
}

func TestDoctorOnAClusterThatIsWell(t *testing.T) {
	t.Parallel()
	g := newStage(t)
	permit(g)
	g.state.Events = nil
	out, err := g.run(t, "doctor")
	if err != nil || !strings.HasPrefix(out, "all is well: access, metrics, ") {
		t.Errorf("printed %q, %v", out, err)
	}
	var d diagnosis
	if out, err = g.run(t, "doctor", "-o", "json"); err != nil || json.Unmarshal([]byte(out), &d) != nil || !d.OK {
		t.Errorf("printed %q, %v", out, err)
	}
	if _, err := g.run(t, "doctor", "--controller", g.addrs["controller-a"]); err != nil {
		t.Error(err)
	}
}

func TestDoctorOnAClusterThatIsIll(t *testing.T) {
	t.Parallel()
	holder, seconds := "extproc/r9", int32(300)
	g := newStage(t, poolDeployment(), controllerPod("controller-b", "10.0.0.2"), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "skipper-system", Name: "skipper-extproc-r9", Labels: map[string]string{"app.kubernetes.io/component": "skipper-extproc"}, Annotations: map[string]string{"skipper/envoy-node": "envoy-9"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: clock.Add(-time.Minute)}},
	})
	permit(g, "prod patch pods", "skipper-system create leases")
	g.kube.Resources = nil
	out, err := g.run(t, "doctor")
	if err == nil || err.Error() != "problems found: 5" {
		t.Errorf("error is %v", err)
	}
	golden(t, "doctor.txt", out)
	out, err = g.run(t, "doctor", "-o", "json")
	if err == nil {
		t.Error("no error for programs")
	}
	golden(t, "doctor.json", out)
}

// What cannot be asked is no reason to say nothing of the rest.
func TestDoctorSaysWhatItCouldNotCheck(t *testing.T) {
	t.Parallel()
	g := newStage(t)
	g.state.Events = nil
	g.kube.PrependReactor("*", "*", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if a.GetResource().Resource == "pods" && a.GetNamespace() == "skipper-system" || a.GetResource().Resource == "secrets" {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: a.GetResource().Resource}, "", errors.New("not you"))
	})
	out, err := g.run(t, "doctor")
	if err != nil || strings.Contains(out, "all is well") {
		t.Errorf("printed %q, %v", out, err)
	}
	for _, part := range []string{"unknown  access: ", "unknown  lease: leases of extprocs", "unknown  pool: namespace prod"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is not in %s", part, out)
		}
	}
}
