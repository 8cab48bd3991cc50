package deploy

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// bootstrapName is the ConfigMap with Envoy's configuration: bootstrap.yaml and what it refers to.
const bootstrapName = "skipper-envoy-bootstrap"

// object is the part of a manifest that deploying looks at.
type object struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	text     []byte
}

// kustomization is the generated layer above the project's overlay.
type kustomization struct {
	APIVersion         string      `json:"apiVersion"`
	Kind               string      `json:"kind"`
	Resources          []string    `json:"resources"`
	Images             []imageName `json:"images,omitempty"`
	ConfigMapGenerator []generator `json:"configMapGenerator,omitempty"`
}

type imageName struct {
	Name    string `json:"name"`
	NewName string `json:"newName"`
	NewTag  string `json:"newTag"`
}

// generator adds a hash of the content to the ConfigMap's name, so that a changed bootstrap
// rolls the pods that mount it.
type generator struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Files     []string `json:"files"`
}

// newKustomization maps each image name that the overlay uses to the reference to run instead.
// The resource is the overlay's path relative to the generated folder.
func newKustomization(resource string, images map[string]string, envoyFiles []string) kustomization {
	k := kustomization{APIVersion: "kustomize.config.k8s.io/v1beta1", Kind: "Kustomization", Resources: []string{resource}}
	for _, name := range slices.Sorted(maps.Keys(images)) {
		repository, tag := splitRef(images[name])
		k.Images = append(k.Images, imageName{Name: name, NewName: repository, NewTag: tag})
	}
	if len(envoyFiles) > 0 {
		k.ConfigMapGenerator = []generator{{Name: bootstrapName, Namespace: systemNamespace, Files: envoyFiles}}
	}
	return k
}

// splitRef cuts the tag off; a colon before the last slash is a registry's port.
func splitRef(ref string) (repository, tag string) {
	at := strings.LastIndexByte(ref, ':')
	if at < strings.LastIndexByte(ref, '/') {
		return ref, ""
	}
	if at < 0 {
		return ref, ""
	}
	return ref[:at], ref[at+1:]
}

// render writes the generated layer into dir and returns all manifests. Without files of Envoy
// its ConfigMap is left out.
func (d Deployment) render(ctx context.Context, dir string) ([]object, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make overlay folder: %w", err)
	}
	overlay, err := filepath.Rel(dir, d.Overlay)
	if err != nil {
		return nil, fmt.Errorf("find overlay: %w", err)
	}
	content, err := yaml.Marshal(newKustomization(overlay, d.Images, slices.Sorted(maps.Keys(d.EnvoyFiles))))
	if err != nil {
		return nil, fmt.Errorf("encode kustomization: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), content, 0o644); err != nil {
		return nil, fmt.Errorf("write kustomization: %w", err)
	}
	for name, text := range d.EnvoyFiles {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return nil, fmt.Errorf("write Envoy's configuration: %w", err)
		}
	}
	manifests, err := d.Kubectl.run(ctx, nil, "kustomize", dir)
	if err != nil {
		return nil, err
	}
	return split(manifests)
}

// split cuts a stream of YAML documents; empty ones are dropped.
func split(manifests []byte) ([]object, error) {
	var objects []object
	for document := range bytes.SplitSeq(manifests, []byte("\n---\n")) {
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		o := object{text: document}
		if err := yaml.Unmarshal(document, &o); err != nil {
			return nil, fmt.Errorf("read rendered manifest: %w", err)
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// join is the inverse of split for the objects that pick chooses.
func join(objects []object, pick func(object) bool) []byte {
	var texts [][]byte
	for _, o := range objects {
		if pick(o) {
			texts = append(texts, o.text)
		}
	}
	return bytes.Join(texts, []byte("\n---\n"))
}
