package deploy

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNewKustomization(t *testing.T) {
	got := newKustomization("../overlay", map[string]string{
		"skipper-echo":       "docker.io/local/skipper-echo:abc",
		"skipper-controller": "registry:5000/team/skipper-controller:v1",
	})
	want := kustomization{
		APIVersion: "kustomize.config.k8s.io/v1beta1", Kind: "Kustomization", Resources: []string{"../overlay"},
		Images: []imageName{
			{"skipper-controller", "registry:5000/team/skipper-controller", "v1"},
			{"skipper-echo", "docker.io/local/skipper-echo", "abc"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
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

func TestRemoteImages(t *testing.T) {
	got, err := RemoteImages("registry/team", "v1", "skipper-echo")
	if diff := cmp.Diff(map[string]string{"skipper-echo": "registry/team/skipper-echo:v1"}, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	if _, err := RemoteImages("", "v1", "skipper-echo"); !errors.Is(err, ErrNoImages) {
		t.Errorf("without a prefix: %v, want ErrNoImages", err)
	}
}
