package connect

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	namespacesFlag = "--function-namespaces"
	namespacesEnv  = "SKIPPER_FUNCTION_NAMESPACES"
)

// FunctionNamespaces are those that the controllers manage, sorted, as their
// pods' flags and variables say.
func (c *Cluster) FunctionNamespaces(ctx context.Context) ([]string, error) {
	pods, err := c.Kube.CoreV1().Pods(c.System).List(ctx, metav1.ListOptions{LabelSelector: c.Selector})
	if err != nil {
		return nil, fmt.Errorf("list controllers in namespace %s: %w", c.System, err)
	}
	var out []string
	for i := range pods.Items {
		for j := range pods.Items[i].Spec.Containers {
			out = append(out, namespacesOf(&pods.Items[i].Spec.Containers[j])...)
		}
	}
	slices.Sort(out)
	if out = slices.Compact(out); len(out) == 0 {
		return nil, fmt.Errorf("find function namespaces: no controller in namespace %s with labels %s says any: set --namespace", c.System, c.Selector)
	}
	return out, nil
}

// namespacesOf reads a container; a flag beats the variable.
func namespacesOf(c *corev1.Container) []string {
	args := slices.Concat(c.Command, c.Args)
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, namespacesFlag+"="); ok {
			return split(v)
		}
		if a == namespacesFlag && i+1 < len(args) {
			return split(args[i+1])
		}
	}
	for _, e := range c.Env {
		if e.Name == namespacesEnv {
			return split(e.Value)
		}
	}
	return nil
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
