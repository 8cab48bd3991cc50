package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"skipper/deploy/local/internal/chart"
)

// existingHeader stands above the parts for an Envoy that is there already.
const existingHeader = `# What an Envoy needs to carry Skipper's traffic, beside what it has: what
# skipper envoy bootstrap --parts --secrets-dir=/etc/skipper prints.
# Made by make manifests. Change it there.
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

// existingEnvoy asks the project's own command for the gateway's parts.
func (t *tools) existingEnvoy(ctx context.Context) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", "run", "./cmd/skipper", "envoy", "bootstrap", "--parts", "--secrets-dir=/etc/skipper")
	cmd.Dir = t.builder.Root
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=local")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run skipper envoy bootstrap: %w: %s", err, strings.TrimSpace(errs.String()))
	}
	return append([]byte(existingHeader), out.Bytes()...), nil
}
