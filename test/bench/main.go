// Command bench measures Skipper beside its rivals and writes docs/benchmarks.md.
//
// It starts the real Envoy, the real extproc and, as programs of their own so
// that the processor time of each can be read, the rivals and the backend: they
// are this same program under hidden verbs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"skipper/test/bench/rival"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the flags of the measuring verb.
type options struct {
	out         string
	gateway     string
	connections []int
	rounds      int
	duration    time.Duration
	samples     int
	only        string

	claims, claimClients int

	fleetFunctions, fleetPods int
	fleetSettle               time.Duration

	held    int
	heldFor time.Duration

	updateEndpoints []int
	updates         int
}

func newCommand() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use: "bench", Short: "Measure Skipper beside its rivals", SilenceUsage: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return measure(cmd.Context(), o) },
	}
	f := root.Flags()
	f.StringVar(&o.out, "out", "docs/benchmarks.md", "file to write")
	f.StringVar(&o.gateway, "gateway", "http://10.244.0.1:30080", "Envoy of the local cluster, for cold starts")
	f.IntSliceVar(&o.connections, "connections", []int{8, 64, 512}, "connections of the warm load")
	f.IntVar(&o.rounds, "rounds", 5, "rounds of the warm load and of claims, contestants in turn")
	f.DurationVar(&o.duration, "duration", 4*time.Second, "length of one turn, whole seconds")
	f.IntVar(&o.samples, "samples", 300, "cold starts")
	f.IntVar(&o.claims, "claims", 300, "claims in each round of each number of controllers")
	f.IntVar(&o.claimClients, "claim-clients", 24, "clients that claim, or patch, at once")
	f.IntVar(&o.fleetFunctions, "fleet-functions", 10_000, "functions of the fleet, one instance each")
	f.IntVar(&o.fleetPods, "fleet-pods", 50_000, "pods of the fleet, those of functions among them")
	f.DurationVar(&o.fleetSettle, "fleet-settle", 150*time.Second, "time before the fleet's memory is read, beyond the 2 min of a forced collection")
	f.IntVar(&o.held, "held", 5_000, "requests that are held open at once")
	f.DurationVar(&o.heldFor, "held-for", time.Minute, "time for which all of them are held")
	f.IntSliceVar(&o.updateEndpoints, "update-endpoints", []int{1_000, 10_000, 50_000}, "endpoints beside which updates are measured")
	f.IntVar(&o.updates, "updates", 300, "endpoints that come and go again, one by one, or as many as do within 30 s")
	f.StringVar(&o.only, "only", "", `"warm", "cold", "claims", "updates", "fleet" or "held": that part alone; empty: all`)
	root.AddCommand(
		part("backend ADDR", 1, func(ctx context.Context, a []string) error { return serveBackend(ctx, a[0]) }),
		part("controller ADDR BACKEND", 2, func(ctx context.Context, a []string) error { return serveController(ctx, a[0], a[1]) }),
		part("updates-controller ADDR WEB ENDPOINTS SHARDS", 4, func(ctx context.Context, a []string) error {
			return serveUpdates(ctx, a[0], a[1], a[2], a[3])
		}),
		part("updates-envoys ADDR N", 2, func(ctx context.Context, a []string) error { return playEnvoys(ctx, a[0], a[1]) }),
		part("router ADDR CONTROLLER", 2, func(ctx context.Context, a []string) error {
			return serveRival(ctx, a[0], a[1], rival.DefaultTransport())
		}),
		part("router-tuned ADDR CONTROLLER", 2, func(ctx context.Context, a []string) error {
			return serveRival(ctx, a[0], a[1], rival.KeepAliveTransport())
		}),
	)
	return root
}

// part is a verb under which this program plays one of the processes.
func part(use string, args int, run func(context.Context, []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Hidden: true, Args: cobra.ExactArgs(args),
		RunE: func(cmd *cobra.Command, a []string) error { return run(cmd.Context(), a) },
	}
}
