package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"skipper/cmd/skipper/internal/output"
	"skipper/cmd/skipper/internal/view"
)

// eventsOptions are the flags of "events".
type eventsOptions struct {
	filter
	follow   bool
	warnings bool
	since    time.Duration
	every    time.Duration
}

func newEvents(w *world) *cobra.Command {
	b, o := newBase(w), &eventsOptions{}
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List what controllers did and found; -f goes on",
		Long: `List what controllers did and found; -f goes on until it is interrupted.

Controllers keep their newest events in memory, so none is older than its
controller. With -f, json is one object a line.`,
		Args: cobra.NoArgs,
		RunE: b.run(func(ctx context.Context, s *session) error { return o.run(ctx, s) }),
	}
	b.addFlags(cmd)
	b.addControllerFlags(cmd.Flags())
	o.addFlags(cmd.Flags())
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "go on, and print events as they come; --timeout does not count then")
	f.BoolVarP(&o.warnings, "warnings", "w", false, "only warnings")
	f.DurationVar(&o.since, "since", 0, "only events younger than this; 0: all")
	f.DurationVar(&o.every, "every", 2*time.Second, "how often -f asks")
	b.endless = &o.follow
	return cmd
}

// keep tells which events are wanted.
func (o *eventsOptions) keep(now time.Time) func(view.Event) bool {
	return func(e view.Event) bool {
		young := o.since <= 0 || e.At != nil && now.Sub(*e.At) <= o.since
		return young && (!o.warnings || e.Warning())
	}
}

func (o *eventsOptions) run(ctx context.Context, s *session) error {
	if o.every <= 0 {
		return errors.New("--every is not above 0: say how often -f asks, such as 2s")
	}
	client, err := s.Controller(ctx)
	if err != nil {
		return err
	}
	ask := func(ctx context.Context) ([]view.Event, error) {
		r := o.request()
		r.WithoutSupervisors = true
		answer, err := client.GetClusterState(ctx, r)
		if err != nil {
			return nil, err
		}
		return view.Events(answer.GetClusterState(), o.keep(s.world.now())), nil
	}
	if o.follow {
		return tail(ctx, ask, o.every, s.printer)
	}
	all, err := ask(ctx)
	if err != nil {
		return fmt.Errorf("get events: %w", err)
	}
	return s.printer.Print(all, view.EventGrid(all))
}

// tail prints what is new, until the context ends or an ask fails.
func tail(ctx context.Context, ask func(context.Context) ([]view.Event, error), every time.Duration, p output.Printer) error {
	var seen view.Tail
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		all, err := ask(ctx)
		if ctx.Err() != nil {
			return nil // interrupted, which is how it ends
		}
		if err != nil {
			return fmt.Errorf("follow events (run the command again to go on): %w", err)
		}
		for _, e := range seen.New(all) {
			if err := p.Line(e, view.EventRow(e)); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
