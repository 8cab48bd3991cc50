package deploy

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNewKustomization(t *testing.T) {
	got := newKustomization("../overlay", map[string]string{
		"skipper-echo":       "docker.io/local/skipper-echo:abc",
		"skipper-controller": "registry:5000/team/skipper-controller:v1",
	}, []string{"bootstrap.yaml", "skipper-identity.yaml"})
	want := kustomization{
		APIVersion: "kustomize.config.k8s.io/v1beta1", Kind: "Kustomization", Resources: []string{"../overlay"},
		Images: []imageName{
			{"skipper-controller", "registry:5000/team/skipper-controller", "v1"},
			{"skipper-echo", "docker.io/local/skipper-echo", "abc"},
		},
		ConfigMapGenerator: []generator{{"skipper-envoy-bootstrap", "skipper-system", []string{"bootstrap.yaml", "skipper-identity.yaml"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := newKustomization("x", nil, nil); got.ConfigMapGenerator != nil {
		t.Errorf("without a bootstrap: %+v", got.ConfigMapGenerator)
	}
}

func TestSplitRef(t *testing.T) {
	tests := map[string][2]string{
		"a/b:c":           {"a/b", "c"},
		"host:5000/a/b":   {"host:5000/a/b", ""},
		"host:5000/a/b:c": {"host:5000/a/b", "c"},
		"a":               {"a", ""},
	}
	for ref, want := range tests {
		repository, tag := splitRef(ref)
		if diff := cmp.Diff(want, [2]string{repository, tag}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", ref, diff)
		}
	}
}

const manifests = `kind: Namespace
metadata:
  name: functions
---
kind: Deployment
metadata:
  name: echo
  namespace: functions
---
`

func TestSplitAndJoin(t *testing.T) {
	objects, err := split([]byte(manifests))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, o := range objects {
		kinds = append(kinds, o.Kind+" "+o.Metadata.Namespace+"/"+o.Metadata.Name)
	}
	if diff := cmp.Diff([]string{"Namespace /functions", "Deployment functions/echo"}, kinds); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got := string(join(objects, func(o object) bool { return o.Kind == "Namespace" }))
	if diff := cmp.Diff("kind: Namespace\nmetadata:\n  name: functions", got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPublicHalfVerifiesWhatThePrivateSigns(t *testing.T) {
	private, err := newPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	public, err := publicHalf(private)
	if err != nil {
		t.Fatal(err)
	}
	privateBlock, _ := pem.Decode(private)
	publicBlock, _ := pem.Decode(public)
	signer, err := x509.ParsePKCS8PrivateKey(privateBlock.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := x509.ParsePKIXPublicKey(publicBlock.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	message := []byte("message")
	if !ed25519.Verify(verifier.(ed25519.PublicKey), message, ed25519.Sign(signer.(ed25519.PrivateKey), message)) {
		t.Error("the halves do not match")
	}
}

func TestPublicHalfRefusesOtherContent(t *testing.T) {
	for name, content := range map[string]string{
		"no PEM":  "secret",
		"no key":  "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
		"nothing": "",
	} {
		if _, err := publicHalf([]byte(content)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestRemoteImages(t *testing.T) {
	got, err := RemoteImages("registry/team", "v1", "skipper-echo")
	if diff := cmp.Diff(map[string]string{"skipper-echo": "registry/team/skipper-echo:v1"}, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	if _, err := RemoteImages("", "v1", "skipper-echo"); !errors.Is(err, ErrNoImages) {
		t.Errorf("without a prefix: %v, want ErrNoImages", err)
	}
}
