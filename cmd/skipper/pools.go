package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/cmd/skipper/internal/output"
	"skipper/cmd/skipper/internal/pools"
	"skipper/controller/pool"
)

func newPools(w *world) *cobra.Command {
	b, namespace, all := newBase(w), "", false
	cmd := &cobra.Command{
		Use:   "pools",
		Short: "List pools: how many pods are warm, and what is set up wrongly",
		Long: `List pools: how many pods are warm, and what is set up wrongly.

It asks Kubernetes alone, so it works without a controller; needs the right to
list deployments and pods. Of a pool: REPLICAS is how many warm pods are wanted,
WARM how many can be claimed, STARTING how many cannot yet, ASSIGNED how many
have a tenant. skipper doctor says what PROBLEMS are.`,
		Args: cobra.NoArgs,
		RunE: b.run(func(ctx context.Context, s *session) error {
			found, err := s.pools(ctx, namespace, all)
			if err != nil {
				return err
			}
			return s.printer.Print(found, poolGrid(found))
		}),
	}
	b.addFlags(cmd)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "`namespace` of functions; empty: those that the controllers manage")
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "look in all namespaces, also those that are not managed")
	return cmd
}

// pools reads those of one namespace, of all, or of the managed ones.
func (s *session) pools(ctx context.Context, namespace string, all bool) ([]pools.Pool, error) {
	namespaces := []string{namespace}
	if namespace == "" && !all {
		managed, err := s.FunctionNamespaces(ctx)
		if err != nil {
			return nil, err
		}
		namespaces = managed
	}
	var deployments []appsv1.Deployment
	var pods []corev1.Pod
	for _, ns := range namespaces {
		d, err := s.Kube.AppsV1().Deployments(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list deployments in %s: %w", named(ns), err)
		}
		p, err := s.Kube.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: pool.LabelDeployment})
		if err != nil {
			return nil, fmt.Errorf("list pods in %s: %w", named(ns), err)
		}
		deployments, pods = append(deployments, d.Items...), append(pods, p.Items...)
	}
	return pools.Of(deployments, pods), nil
}

func named(namespace string) string {
	if namespace == "" {
		return "all namespaces"
	}
	return "namespace " + namespace
}

func poolGrid(all []pools.Pool) output.Grid {
	g := output.Grid{Columns: []string{"NAMESPACE", "DEPLOYMENT", "REPLICAS", "WARM", "STARTING", "ASSIGNED", "DRAINING", "TENANTS", "PORT", "PROTOCOL", "PROBLEMS"}, Empty: "no pool found: docs/functions.md says what makes a Deployment one"}
	for _, p := range all {
		warm, problems := output.Toned(fmt.Sprint(p.Warm), output.Good), output.Text(len(p.Findings))
		if p.Warm == 0 {
			warm.Tone = output.Bad
		}
		if len(p.Findings) > 0 {
			problems.Tone = output.Bad
		}
		g.Add(output.Text(p.Namespace), output.Text(p.Deployment), output.Text(p.Replicas), warm, output.Text(p.Starting), output.Text(p.Assigned),
			output.Text(p.Draining), output.Text(p.Tenants), output.Text(p.Port), output.Text(p.Protocol), problems)
	}
	return g
}
