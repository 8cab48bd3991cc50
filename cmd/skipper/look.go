package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"skipper/cmd/skipper/internal/view"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

func newFunctions(w *world) *cobra.Command {
	b, x := newBase(w), &filter{}
	cmd := &cobra.Command{
		Use:     "functions",
		Aliases: []string{"function", "fn"},
		Short:   "List functions in use: instances, desired count and why",
		Args:    cobra.NoArgs,
		RunE: b.run(func(ctx context.Context, s *session) error {
			state, err := s.state(ctx, x.request())
			if err != nil {
				return err
			}
			all := view.Functions(state)
			return s.printer.Print(all, view.FunctionGrid(all, w.now()))
		}),
	}
	b.addFlags(cmd)
	b.addControllerFlags(cmd.Flags())
	x.addFlags(cmd.Flags())
	return cmd
}

func newInstances(w *world) *cobra.Command {
	b, x := newBase(w), &filter{}
	cmd := &cobra.Command{
		Use:     "instances",
		Aliases: []string{"instance"},
		Short:   "List instances: whose they are, their state and requests in flight",
		Args:    cobra.NoArgs,
		RunE: b.run(func(ctx context.Context, s *session) error {
			state, err := s.state(ctx, x.request())
			if err != nil {
				return err
			}
			all := view.Instances(state)
			return s.printer.Print(all, view.InstanceGrid(all, w.now()))
		}),
	}
	b.addFlags(cmd)
	b.addControllerFlags(cmd.Flags())
	x.addFlags(cmd.Flags())
	return cmd
}

func newDescribe(w *world) *cobra.Command {
	cmd := &cobra.Command{Use: "describe", Short: "Show all that is known of a function or an instance", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(newDescribeFunction(w), newDescribeInstance(w))
	return cmd
}

// described is a thing with its events, for programs.
type described[T any] struct {
	Thing     T               `json:"thing"`
	Instances []view.Instance `json:"instances,omitempty"`
	Events    []view.Event    `json:"events"`
}

func newDescribeFunction(w *world) *cobra.Command {
	b := newBase(w)
	cmd := &cobra.Command{
		Use:     "function NAMESPACE/DEPLOYMENT/TENANT[/oneshot]",
		Short:   "Show a function: bounds, decision, instances, routers, events",
		Example: "  skipper describe function functions/echo/me",
		Args:    cobra.ExactArgs(1),
		RunE: b.run(func(ctx context.Context, s *session) error {
			f, err := view.ParseFunction(s.args[0])
			if err != nil {
				return err
			}
			state, err := s.state(ctx, filterOf(f).request())
			if err != nil {
				return err
			}
			return describeFunction(s, state, fn.KeyOf(f))
		}),
		ValidArgsFunction: b.complete(functionNames),
	}
	b.addFlags(cmd)
	b.addControllerFlags(cmd.Flags())
	return cmd
}

func describeFunction(s *session, state *skipperpb.ClusterState, k fn.Key) error {
	v := view.FindFunction(state, k)
	if v == nil {
		return fmt.Errorf("function %s has no instances and no heartbeats: it is made by its first request; skipper functions lists those in use", k)
	}
	one := &skipperpb.ClusterState{Supervisors: []*skipperpb.SupervisorState{v}}
	f, instances := view.Functions(one)[0], view.Instances(one)
	events := view.Events(state, func(e view.Event) bool { return e.Function == f.Name })
	return s.printer.Print(described[view.Function]{f, instances, events}, view.FunctionSheet(f, instances, events, s.world.now()))
}

func newDescribeInstance(w *world) *cobra.Command {
	b, namespace := newBase(w), ""
	cmd := &cobra.Command{
		Use:   "instance NAME|UID",
		Short: "Show an instance: whose it is, its state, events",
		Args:  cobra.ExactArgs(1),
		RunE: b.run(func(ctx context.Context, s *session) error {
			state, err := s.state(ctx, &skipperpb.GetClusterStateRequest{Namespace: namespace})
			if err != nil {
				return err
			}
			i, _, ok := view.FindInstance(state, namespace, s.args[0])
			if !ok {
				return noInstance(s.args[0])
			}
			events := view.Events(state, func(e view.Event) bool { return e.Instance == i.Name })
			return s.printer.Print(described[view.Instance]{Thing: i, Events: events}, view.InstanceSheet(i, events, w.now()))
		}),
		ValidArgsFunction: b.complete(instanceNames),
	}
	b.addFlags(cmd)
	b.addControllerFlags(cmd.Flags())
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "look in this namespace only")
	return cmd
}

func noInstance(name string) error {
	return fmt.Errorf("no function has an instance named %.100q: skipper instances lists them; a pod without a tenant is none", name)
}
