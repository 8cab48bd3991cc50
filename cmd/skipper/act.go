package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"skipper/cmd/skipper/internal/output"
	"skipper/cmd/skipper/internal/view"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

func newScale(w *world) *cobra.Command {
	b, c := newBase(w), &configuration{}
	cmd := &cobra.Command{
		Use:   "scale FUNCTION COUNT",
		Short: "Bring a function to a number of instances",
		Long: `Bring a function to a number of instances, within its bounds, and list them.

The controller goes on scaling it: more instances stay for the stabilisation window,
and go after the heartbeat timeout unless the function is used; fewer may become more
again if its metrics ask for it. To hold a number, use scale.min_instances in
requests. Metadata and scale that are not given are those in force.`,
		Example: "  skipper scale functions/echo/me 3",
		Args:    cobra.ExactArgs(2),
		RunE:    b.run(func(ctx context.Context, s *session) error { return scale(ctx, s, c) }), ValidArgsFunction: b.complete(functionNames),
	}
	b.addFlags(cmd)
	b.addControllerFlags(cmd.Flags())
	c.addFlags(cmd.Flags(), thatInForce)
	return cmd
}

func scale(ctx context.Context, s *session, c *configuration) error {
	named, err := view.ParseFunction(s.args[0])
	if err != nil {
		return err
	}
	count, err := parseCount(s.args[1])
	if err != nil {
		return err
	}
	client, err := s.Controller(ctx)
	if err != nil {
		return err
	}
	answer, err := client.GetClusterState(ctx, filterOf(named).request())
	if err != nil {
		return fmt.Errorf("get cluster state: %w", err)
	}
	f, err := c.complete(named, view.FindFunction(answer.GetClusterState(), fn.KeyOf(named)).GetFunction(), s.changed)
	if err != nil {
		return err
	}
	if bounds := f.GetScale(); count > 0 && (count < bounds.GetMinInstances() || count > bounds.GetMaxInstances()) {
		s.say("%d is outside the function's bounds of %d to %d, which hold: give --max-instances or --min-instances to change them", count, bounds.GetMinInstances(), bounds.GetMaxInstances())
	}
	scaled, err := client.Scale(ctx, &skipperpb.ScaleRequest{Function: f, DesiredInstances: count})
	if err != nil {
		return fmt.Errorf("scale %s: %w", fn.KeyOf(f), err)
	}
	all := view.Instances(&skipperpb.ClusterState{Supervisors: []*skipperpb.SupervisorState{{Instances: scaled.GetInstances()}}})
	return s.printer.Print(all, view.InstanceGrid(all, s.world.now()))
}

func parseCount(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("COUNT is %.100q: write a whole number from 0 to %d", text, uint32(math.MaxUint32))
	}
	return uint32(n), nil
}

func newRelease(w *world) *cobra.Command {
	b, namespace := newBase(w), ""
	cmd := &cobra.Command{
		Use:   "release INSTANCE...",
		Short: "Have a controller give instances back: drain them, or delete a oneshot's",
		Long: `Have a controller give instances back, as a router does: it drains them, and
deletes those of oneshot functions at once, with the request that they serve.
An instance is a pod's name or UID. The function goes on, and may get others.`,
		Args:              cobra.MinimumNArgs(1),
		RunE:              b.run(func(ctx context.Context, s *session) error { return release(ctx, s, namespace) }),
		ValidArgsFunction: b.complete(instanceNames),
	}
	b.addFlags(cmd)
	b.addControllerFlags(cmd.Flags())
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "look in this namespace only")
	return cmd
}

// done is what became of one instance.
type done struct {
	Instance string `json:"instance"`
	Function string `json:"function"`
	Outcome  string `json:"outcome"`
}

func doneGrid(all []done) output.Grid {
	g := output.Grid{Columns: []string{"INSTANCE", "FUNCTION", "OUTCOME"}, Empty: "nothing was done"}
	for _, d := range all {
		g.Add(output.Text(d.Instance), output.Text(d.Function), output.Text(d.Outcome))
	}
	return g
}

// release finds all before it gives any back.
func release(ctx context.Context, s *session, namespace string) error {
	client, err := s.Controller(ctx)
	if err != nil {
		return err
	}
	answer, err := client.GetClusterState(ctx, &skipperpb.GetClusterStateRequest{Namespace: namespace})
	if err != nil {
		return fmt.Errorf("get cluster state: %w", err)
	}
	s.remark(answer.GetClusterState())
	var found []*skipperpb.Instance
	for _, name := range s.args {
		_, i, ok := view.FindInstance(answer.GetClusterState(), namespace, name)
		if !ok {
			return noInstance(name)
		}
		found = append(found, i)
	}
	all := []done{}
	for _, i := range found {
		if _, err := client.ReleaseInstance(ctx, &skipperpb.ReleaseInstanceRequest{Instance: i}); err != nil {
			err = fmt.Errorf("release instance %s: %w", i.GetName(), err)
			return errors.Join(err, s.printer.Print(all, doneGrid(all)))
		}
		outcome := "draining"
		if i.GetFunction().GetOneshot() {
			outcome = "deleted"
		}
		all = append(all, done{i.GetName(), fn.KeyOf(i.GetFunction()).String(), outcome})
	}
	return s.printer.Print(all, doneGrid(all))
}
