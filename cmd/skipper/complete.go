package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/cmd/skipper/internal/connect"
	"skipper/controller/pool"
)

const (
	// completeWithin is how long a person waits for a key press.
	completeWithin = 2 * time.Second
	// completeMost bounds how many pods are read for it.
	completeMost = 500
)

// complete offers names that are read from tenants' pods: one list of Kubernetes
// and no controller. What cannot be read offers nothing.
func (b *base) complete(names func(pool.Pod) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		cluster, err := b.world.open(b.options)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer cluster.Close()
		return namesIn(ctx, cluster, names, start), cobra.ShellCompDirectiveNoFileComp
	}
}

func namesIn(ctx context.Context, c *connect.Cluster, names func(pool.Pod) string, start string) []cobra.Completion {
	namespaces, err := c.FunctionNamespaces(ctx)
	if err != nil {
		return nil
	}
	var out []cobra.Completion
	for _, ns := range namespaces {
		pods, err := c.Kube.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: pool.LabelTenant, Limit: completeMost})
		if err != nil {
			continue
		}
		for _, p := range parse(pods.Items) {
			if n := names(p); n != "" && strings.HasPrefix(n, start) {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func parse(pods []corev1.Pod) []pool.Pod {
	parser := pool.NewParser(len(pods))
	out := make([]pool.Pod, 0, len(pods))
	for i := range pods {
		out = append(out, pool.FromPod(&pods[i], parser))
	}
	return out
}

func instanceNames(p pool.Pod) string { return p.Name }

func functionNames(p pool.Pod) string {
	if p.Function == nil {
		return ""
	}
	return p.Key.String()
}
