// Command skipper-local runs Skipper on this machine: a real Kubernetes node built from source,
// without a container engine or a registry, and Skipper on it.
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
	// nft and modprobe are where the PATH of a root that came by su does not lead.
	_ = os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "skipper-local:", err)
		os.Exit(1)
	}
}

// newCommand is the whole command line.
func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "skipper-local",
		Short:         "Run a local Kubernetes node and Skipper on it",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	var s settings
	flags := root.PersistentFlags()
	flags.StringVar(&s.root, "root", "", "folder of the project (default: found upwards from the current folder)")
	flags.StringVar(&s.cluster, "cluster", clusterLocal, `"local" for the node of this machine, "existing" for the cluster of the current kubeconfig`)
	flags.StringVar(&s.imagePrefix, "image-prefix", "", "existing cluster: registry and path that hold the images skipper-controller, skipper-extproc, skipper-cli, skipper-echo and skipper-envoy")
	flags.StringVar(&s.imageTag, "image-tag", "latest", "existing cluster: tag of the images")
	flags.StringVar(&s.overlay, "overlay", "", "Kustomize folder to deploy beside Skipper's chart (default: deploy/local/overlay of the project)")
	root.AddCommand(
		s.verb("up", "Start the node, wait until it is ready, and deploy Skipper to it", s.up, s.upFlags),
		s.verb("down", "Stop the node and leave nothing of it behind but the cache", s.down, nil),
		s.verb("build", "Fill the cache with every program, and start nothing", s.build, nil),
		s.verb("images", "Build Skipper's images and give them to the node", s.images, nil),
		s.verb("deploy", "Build the images, apply the manifests, wait, and print a first request", s.deploy, nil),
		s.verb("manifests", "Write the Kustomize folders from the chart, and the chart's generated parts", s.manifests, nil),
		s.verb("status", "Say how each component of the node is", s.status, nil),
		s.verb("kubeconfig", "Print the path of the node's kubeconfig", s.kubeconfig, nil),
		s.verb("browser", "Install the headless browser that the web interface is tested in", browser, nil),
		s.verb("envoy", "Print the path of the Envoy program, fetching it if needed", s.envoy, s.envoyFlags),
	)
	return root
}

// verb is one subcommand without arguments.
func (s *settings) verb(use, short string, run func(context.Context) error, flags func(*cobra.Command)) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context()) },
	}
	if flags != nil {
		flags(cmd)
	}
	return cmd
}
