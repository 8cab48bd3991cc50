package provision

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// metaIn is the metadata of an object, and what writes its changes.
func metaIn(t *testing.T, kube *fake.Clientset, r Ref) (metav1.Object, func()) {
	t.Helper()
	if r.Kind == "Secret" {
		s, err := kube.CoreV1().Secrets(r.Namespace).Get(t.Context(), r.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s, func() { _, err = kube.CoreV1().Secrets(r.Namespace).Update(t.Context(), s, metav1.UpdateOptions{}) }
	}
	m, err := kube.CoreV1().ConfigMaps(r.Namespace).Get(t.Context(), r.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m, func() {
		m.Data[PublicKeyFile] = "" // so that it is written anew
		_, err = kube.CoreV1().ConfigMaps(r.Namespace).Update(t.Context(), m, metav1.UpdateOptions{})
	}
}

// What others have written to an object stays when its data is renewed.
func TestRenewalKeepsLabelsAndAnnotations(t *testing.T) {
	kube := fake.NewClientset()
	provisioned(t, kube, start)
	renewed := []Ref{certificate("system", "envoy"), certificate("shop", "extproc"), {"ConfigMap", "f1", PublicKeyName}}
	for _, r := range renewed {
		m, update := metaIn(t, kube, r)
		m.SetLabels(map[string]string{"theirs": "label"})
		m.SetAnnotations(map[string]string{"theirs": "annotation"})
		update()
	}
	if got := provisioned(t, kube, start.Add(320*24*time.Hour)); len(got) < len(renewed) {
		t.Fatalf("renewed %v", got)
	}
	for _, r := range renewed {
		if m, _ := metaIn(t, kube, r); m.GetLabels()["theirs"] != "label" || m.GetAnnotations()["theirs"] != "annotation" {
			t.Errorf("%s has labels %v and annotations %v", r, m.GetLabels(), m.GetAnnotations())
		}
	}
}

// A write names the version that was decided by, so that nobody's is undone.
func TestWriteOfAnOldVersionIsAConflict(t *testing.T) {
	kube := fake.NewClientset()
	provisioned(t, kube, start)
	for _, resource := range []string{"secrets", "configmaps"} {
		kube.PrependReactor("update", resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
			o := a.(clienttesting.UpdateAction).GetObject().(metav1.ObjectMetaAccessor).GetObjectMeta()
			if v := o.GetResourceVersion(); v != "old" {
				t.Errorf("%s would be written over version %q", o.GetName(), v)
			}
			return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), o.GetName(), nil)
		})
	}
	for _, r := range []Ref{certificate("system", "envoy"), {"ConfigMap", "f1", PublicKeyName}} {
		if err := write(t.Context(), kube, Change{Ref: r, Replaces: true, Version: "old"}); !apierrors.IsConflict(err) {
			t.Errorf("%s: %v, want a conflict", r, err)
		}
	}
}
