// Command echo is the example function: a pod of a pool whose answers tell what it was sent. It uses the package
// function as any author would, and can play images that misbehave.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// crashStatus is the exit status of /crash; an error of the command itself exits with 1.
const crashStatus = 3

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand(func() { os.Exit(crashStatus) }).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

// newCommand returns the command; crash is what /crash does where --allow-crash is set.
func newCommand(crash func()) *cobra.Command {
	cfg := defaults()
	cmd := &cobra.Command{
		Use:   "echo",
		Short: "Example function of Skipper that echoes what it is sent",
		Long: "Example function of Skipper that echoes what it is sent.\n\n" +
			"Every flag may be given by the environment as SKIPPER_ECHO_ and its name in upper snake case; the flag wins.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnv(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			return run(cmd.Context(), cfg, crash)
		},
	}
	cfg.addFlags(cmd.Flags())
	return cmd
}
