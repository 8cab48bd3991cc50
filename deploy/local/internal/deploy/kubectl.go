// Package deploy puts Skipper's chart and an overlay beside it into a cluster through kubectl: it
// names the images in them, runs the chart's hooks as Helm does, and waits until every Deployment
// has rolled out. The cluster is the only state.
package deploy

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Kubectl calls a kubectl program. An empty Kubeconfig means the one that kubectl finds; a nil
// Env the caller's environment.
type Kubectl struct {
	Program    string
	Kubeconfig string
	Env        []string
}

// run returns what kubectl printed; input may be nil.
func (k Kubectl) run(ctx context.Context, input []byte, args ...string) ([]byte, error) {
	if k.Kubeconfig != "" {
		args = append([]string{"--kubeconfig", k.Kubeconfig}, args...)
	}
	cmd := exec.CommandContext(ctx, k.Program, args...)
	cmd.Env = k.Env
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.Bytes(), nil
}

// apply is repeatable: what is equal already stays.
func (k Kubectl) apply(ctx context.Context, manifests []byte) error {
	_, err := k.run(ctx, manifests, "apply", "--server-side", "--force-conflicts", "--field-manager=skipper-local", "-f", "-")
	return err
}
