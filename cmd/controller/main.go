// Command controller turns Deployments into pools of warm pods: it claims pods
// for tenants on demand, scales each tenant's function, gives pods back, and
// tells Envoys and extprocs where to send requests.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr/funcr"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"k8s.io/klog/v2"

	"skipper/controller/config"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand(start).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "controller:", err)
		os.Exit(1)
	}
}

// start is what the command does once its settings are known to be usable.
func start(ctx context.Context, s settings) error {
	logger, err := newLogger(s.LogLevel, s.LogFormat)
	if err != nil {
		return err
	}
	defer func() { _ = logger.Sync() }() // stderr of a container cannot be synced
	// The Kubernetes libraries know no logger but that of the process.
	klog.SetLogger(funcr.New(func(prefix, args string) {
		logger.Named("client-go").Info(args, zap.String("of", prefix))
	}, funcr.Options{}))
	c, err := newClients(s.Config)
	if err != nil {
		return err
	}
	listeners, err := listen(ctx, s.Config)
	if err != nil {
		return err
	}
	defer listeners.close()
	return run(ctx, s, c, listeners, logger)
}

func newCommand(start func(context.Context, settings) error) *cobra.Command {
	cfg := config.Default()
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Claim, scale and route to the pods of functions",
		Long: "Claim, scale and route to the pods of functions.\n\n" +
			"Every flag may be given by the environment as SKIPPER_ and its name in upper snake case; the flag wins.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.FromEnv(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			if err := cfg.Validate(); err != nil {
				return fmt.Errorf("check flags: %w", err)
			}
			return start(cmd.Context(), settings{Config: cfg, shown: config.Values(cmd.Flags())})
		},
	}
	cfg.AddFlags(cmd.Flags())
	return cmd
}
