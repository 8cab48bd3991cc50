package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"skipper/deploy/local/internal/chart"
)

// existingHeader stands above the parts for an Envoy that is there already.
const existingHeader = `# What an Envoy needs to carry Skipper's traffic, beside what it has: the gateway's
# own bootstrap without its admin interface, readiness and overload limits.
# Made from skipper envoy bootstrap by make manifests. Change it there.
`

// manifests writes what is made from other files: the Kustomize folders from the chart, and the
// chart's parts for existing Envoys from the gateway's bootstrap.
func (s *settings) manifests(ctx context.Context) error {
	t, err := s.tools()
	if err != nil {
		return err
	}
	existing, err := t.existingEnvoy(ctx)
	if err != nil {
		return err
	}
	if err := os.WriteFile(t.deployPath("helm", "skipper", "files", "existing-envoy.yaml"), existing, 0o644); err != nil {
		return fmt.Errorf("write manifests: %w", err)
	}
	system, functions, err := chart.Base(t.deployPath("helm", "skipper"))
	if err != nil {
		return err
	}
	for file, text := range map[string]string{"base": system, "function-namespace": functions} {
		if err := os.WriteFile(t.deployPath(file, "skipper.yaml"), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write manifests: %w", err)
		}
	}
	return nil
}

// existingEnvoy asks the project's own command for the gateway's bootstrap.
func (t *tools) existingEnvoy(ctx context.Context) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", "run", "./cmd/skipper", "envoy", "bootstrap")
	cmd.Dir = t.builder.Root
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=local")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run skipper envoy bootstrap: %w: %s", err, strings.TrimSpace(errs.String()))
	}
	return existingParts(out.Bytes())
}

// existingParts leaves out of a bootstrap what every Envoy has itself.
func existingParts(bootstrap []byte) ([]byte, error) {
	var all map[string]any
	if err := yaml.Unmarshal(bootstrap, &all); err != nil {
		return nil, fmt.Errorf("read bootstrap: %w", err)
	}
	for _, own := range []string{"admin", "overload_manager", "stats_config"} {
		delete(all, own)
	}
	static, ok := all["static_resources"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("read bootstrap: it has no static_resources")
	}
	drop(static, "clusters", "admin")
	drop(static, "listeners", "ready")
	text, err := marshal(all)
	if err != nil {
		return nil, fmt.Errorf("encode parts of a bootstrap: %w", err)
	}
	return append([]byte(existingHeader), text...), nil
}

// drop removes the element of that name from a list.
func drop(resources map[string]any, list, name string) {
	elements, _ := resources[list].([]any) // none is an empty list
	resources[list] = slices.DeleteFunc(elements, func(e any) bool {
		m, _ := e.(map[string]any)
		return m["name"] == name
	})
}

// marshal indents as the rest of the project does.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return out.Bytes(), e.Close()
}
