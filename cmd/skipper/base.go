package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skipper/cmd/skipper/internal/connect"
	"skipper/cmd/skipper/internal/output"
)

// world is what commands reach beyond their arguments. Tests have one of their own.
type world struct {
	open   func(connect.Options) (*connect.Cluster, error)
	now    func() time.Time
	getenv func(string) string
}

func realWorld() *world { return &world{connect.Open, time.Now, os.Getenv} }

// base are the flags that all commands on a cluster have.
type base struct {
	world   *world
	options connect.Options
	format  output.Format
	timeout time.Duration
	// endless points to a flag with which the timeout does not count; nil: none.
	endless *bool
}

func newBase(w *world) *base {
	return &base{world: w, timeout: 30 * time.Second, options: connect.Options{System: "skipper-system", Selector: "app.kubernetes.io/name=skipper-controller"}}
}

// addFlags adds those that reach the cluster.
func (b *base) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.VarP(&b.format, "output", "o", "`format` of the result: table for people, json or yaml for programs")
	f.StringVar(&b.options.Kubeconfig, "kubeconfig", "", "kubeconfig `file`; empty: KUBECONFIG, then ~/.kube/config")
	f.StringVar(&b.options.Context, "context", "", "context of the kubeconfig; empty: the current one")
	f.StringVar(&b.options.System, "system-namespace", b.options.System, "`namespace` of the controllers")
	f.StringVar(&b.options.Selector, "controller-selector", b.options.Selector, "`labels` of the controllers' pods")
	f.DurationVar(&b.timeout, "timeout", b.timeout, "how long the command may take; 0: as long as it takes")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(output.Formats(), cobra.ShellCompDirectiveNoFileComp)) // fails for unknown flags only
}

// addControllerFlags adds those of commands that call a controller.
func (b *base) addControllerFlags(f *pflag.FlagSet) {
	f.StringVar(&b.options.Controller, "controller", "", "`host:port` of a controller; empty: a port forward to one of their pods")
	f.StringVar(&b.options.TLSDir, "tls-dir", "", "`folder` with tls.crt, tls.key and ca.crt of role operator; empty: the Secret skipper-tls-operator")
	f.BoolVar(&b.options.Plaintext, "insecure-plaintext", false, "call controllers without TLS, if they run with --insecure-plaintext")
}

// session is one run of a command on a cluster.
type session struct {
	*connect.Cluster
	world   *world
	printer output.Printer
	// note takes remarks that are no result, a line each.
	note io.Writer
	in   io.Reader
	args []string
	// changed tells whether a flag was given.
	changed func(flag string) bool
}

// run makes what cobra calls out of what a command does.
func (b *base) run(do func(context.Context, *session) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := fromEnv(cmd.Flags(), b.world.getenv); err != nil {
			return err
		}
		ctx, cancel := b.within(cmd.Context())
		defer cancel()
		cluster, err := b.world.open(b.options)
		if err != nil {
			return err
		}
		defer cluster.Close()
		out := cmd.OutOrStdout()
		err = do(ctx, &session{
			Cluster: cluster, world: b.world, note: cmd.ErrOrStderr(), in: cmd.InOrStdin(), args: args, changed: cmd.Flags().Changed,
			printer: output.Printer{Out: out, Format: b.format, Colour: output.Colours(out, b.world.getenv)},
		})
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil {
			return fmt.Errorf("%w (--timeout %s has passed)", err, b.timeout)
		}
		return err
	}
}

func (b *base) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if b.timeout <= 0 || b.endless != nil && *b.endless {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, b.timeout)
}
