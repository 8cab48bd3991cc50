package deploy

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"skipper/deploy/local/internal/chart"
)

// kustomization is the generated layer above the project's overlay.
type kustomization struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Resources  []string    `json:"resources"`
	Images     []imageName `json:"images,omitempty"`
}

type imageName struct {
	Name    string `json:"name"`
	NewName string `json:"newName"`
	NewTag  string `json:"newTag"`
}

// newKustomization maps each image name that the overlay uses to the reference to run instead.
// The resource is the overlay's path relative to the generated folder.
func newKustomization(resource string, images map[string]string) kustomization {
	k := kustomization{APIVersion: "kustomize.config.k8s.io/v1beta1", Kind: "Kustomization", Resources: []string{resource}}
	for _, name := range slices.Sorted(maps.Keys(images)) {
		repository, tag := splitRef(images[name])
		k.Images = append(k.Images, imageName{Name: name, NewName: repository, NewTag: tag})
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

// renderOverlay writes the generated layer into dir and returns its objects.
func (d Deployment) renderOverlay(ctx context.Context, dir string) ([]chart.Object, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make overlay folder: %w", err)
	}
	overlay, err := filepath.Rel(dir, d.Overlay)
	if err != nil {
		return nil, fmt.Errorf("find overlay: %w", err)
	}
	content, err := yaml.Marshal(newKustomization(overlay, d.Images))
	if err != nil {
		return nil, fmt.Errorf("encode kustomization: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), content, 0o644); err != nil {
		return nil, fmt.Errorf("write kustomization: %w", err)
	}
	manifests, err := d.Kubectl.run(ctx, nil, "kustomize", dir)
	if err != nil {
		return nil, err
	}
	return chart.Split(string(manifests))
}

// renderChart renders Skipper's chart with the values of the file, and the images.
func (d Deployment) renderChart() ([]chart.Object, error) {
	text, err := os.ReadFile(d.Values)
	if err != nil {
		return nil, fmt.Errorf("read values: %w", err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("read values %s: %w", d.Values, err)
	}
	return chart.Render(d.Chart, systemNamespace, chart.Merge(values, imageValues(d.Images)))
}

// imageValues are the chart's values for images, by what stands behind "skipper-".
func imageValues(images map[string]string) map[string]any {
	out := map[string]any{}
	for _, part := range []string{"controller", "extproc", "envoy", "cli"} {
		if ref, ok := images["skipper-"+part]; ok {
			out[part] = ref
		}
	}
	return map[string]any{"images": out}
}
