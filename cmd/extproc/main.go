// Command extproc is Envoy's sidecar: it answers, for every request, which
// instance of which function the request goes to, and asks the controller where
// there is none yet.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "extproc:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	cfg := defaults()
	cmd := &cobra.Command{
		Use:   "extproc",
		Short: "Choose the instance for every request that Envoy asks about",
		Long: "Choose the instance for every request that Envoy asks about.\n\n" +
			"Every flag may be given by the environment as SKIPPER_ and its name in upper snake case; the flag wins.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnv(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			cfg.complete(os.LookupEnv, os.Hostname)
			if err := cfg.validate(); err != nil {
				return fmt.Errorf("check flags: %w", err)
			}
			return run(cmd.Context(), cfg)
		},
	}
	cfg.addFlags(cmd.Flags())
	return cmd
}
