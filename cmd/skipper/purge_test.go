package main

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What provision makes, purge takes away; without --yes it only says so.
func TestProvisionThenPurge(t *testing.T) {
	t.Parallel()
	g := newStage(t)
	secrets := g.kube.CoreV1().Secrets("skipper-system")
	if err := secrets.Delete(t.Context(), "skipper-tls-operator", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if out, err := g.run(t, "provision", "--function-namespaces", "functions"); err != nil || !strings.Contains(out, "wrote Secret skipper-system/skipper-paseto-key: there is no signing key") {
		t.Fatalf("provision: %v\n%s", err, out)
	}
	out, err := g.run(t, "purge", "--function-namespaces", "functions")
	if err != nil || !strings.Contains(out, "skipper-paseto-key") || !strings.Contains(out, "nothing was deleted") {
		t.Errorf("purge: %v\n%s", err, out)
	}
	if _, err := secrets.Get(t.Context(), "skipper-paseto-key", metav1.GetOptions{}); err != nil {
		t.Errorf("after a purge without --yes: %v", err)
	}
	if out, err := g.run(t, "purge", "--function-namespaces", "functions", "--yes"); err != nil {
		t.Errorf("purge --yes: %v\n%s", err, out)
	}
	if _, err := secrets.Get(t.Context(), "skipper-paseto-key", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after purge --yes: %v, want not found", err)
	}
}

func TestProvisionAndPurgeWantNamespaces(t *testing.T) {
	t.Parallel()
	g := newStage(t)
	for _, verb := range []string{"provision", "purge"} {
		if _, err := g.run(t, verb); err == nil || !strings.Contains(err.Error(), "--function-namespaces is empty") {
			t.Errorf("%s: %v", verb, err)
		}
	}
}
