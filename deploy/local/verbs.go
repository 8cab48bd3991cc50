package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skipper/deploy/local/internal/build"
	"skipper/deploy/local/internal/cluster"
	"skipper/deploy/local/internal/deploy"
	"skipper/deploy/local/internal/host"
	"skipper/deploy/local/internal/image"
	"skipper/deploy/local/internal/preflight"
)

func (s *settings) upFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&s.skipDeploy, "skip-deploy", false, "start the node only")
}

func (s *settings) up(ctx context.Context) error {
	t, err := s.tools()
	if err != nil {
		return err
	}
	if s.cluster == clusterLocal {
		if err := t.upNode(ctx); err != nil {
			return err
		}
	}
	if s.skipDeploy {
		return nil
	}
	return s.deployWith(ctx, t)
}

// upNode starts the node, one process at a time.
func (t *tools) upNode(ctx context.Context) error {
	if err := t.check(ctx); err != nil {
		return err
	}
	release, err := t.store.Lock(ctx, "node")
	if err != nil {
		return err
	}
	defer release()
	binaries, err := t.builder.All(ctx)
	if err != nil {
		return err
	}
	images, err := nodeImages(binaries)
	if err != nil {
		return err
	}
	if err := t.cluster.CleanStale(ctx); err != nil {
		return err
	}
	if err := t.cluster.Up(ctx, images); err != nil {
		return err
	}
	t.say.Line("the node is ready: export KUBECONFIG=%s", t.cluster.Node.Kubeconfig())
	t.say.Line("kubectl is %s", t.store.Path("bin", "kubectl"))
	return nil
}

// check refuses what cannot work with one line per problem, and installs system packages that
// are missing.
func (t *tools) check(ctx context.Context) error {
	facts, err := t.facts(ctx)
	if err != nil {
		return err
	}
	if problems := preflight.Check(facts); len(problems) > 0 {
		return errors.New(strings.Join(problems, "\nskipper-local: "))
	}
	if len(facts.Missing) == 0 {
		return nil
	}
	what := "installing system packages " + strings.Join(facts.Missing, " ")
	return t.say.Step(ctx, what, 30*time.Second, func(ctx context.Context) error {
		return preflight.Install(ctx, facts.Missing)
	})
}

// facts looks at the machine. Where it is not Linux or we are not root, the rest is left out:
// it could not be read, and does not matter.
func (t *tools) facts(ctx context.Context) (preflight.Facts, error) {
	f := preflight.Facts{OS: runtime.GOOS, UID: os.Getuid(), GoFound: preflight.GoFound()}
	if f.OS != "linux" || f.UID != 0 || !f.GoFound {
		return f, nil
	}
	free, err := preflight.FreeBytes(t.store.Path())
	if err != nil {
		return f, err
	}
	node := t.cluster.Node
	network := host.Network{Bridge: node.Bridge, Address: node.Address, Services: node.Services}
	if f.Conflicts, err = network.Conflicts(); err != nil {
		return f, err
	}
	if f.Missing, err = t.missingPackages(ctx); err != nil {
		return f, err
	}
	if !t.cluster.HasState() { // a node that is up needs no further space to stay up
		f.FreeBytes = map[string]uint64{t.store.Path(): free}
	}
	f.TakenPorts = preflight.Taken(ctx, t.cluster.MissingPorts())
	f.Bridge, f.HasBridge = node.Bridge, network.Exists()
	f.HasPods = len(host.PodProcesses()) > 0
	f.OwnState = t.cluster.HasState()
	f.HasApt = preflight.HasApt()
	return f, nil
}

// missingPackages lists what the parts that are still to be made need, and the node itself.
func (t *tools) missingPackages(ctx context.Context) ([]string, error) {
	parts, envoy, err := t.builder.Missing(ctx)
	if err != nil {
		return nil, err
	}
	needed := []string{"nftables", "curl"} // curl is for the line that up ends with
	for _, p := range parts {
		needed = append(needed, p.Needs...)
	}
	if envoy {
		needed = append(needed, "python3-pip")
	}
	return preflight.MissingPackages(ctx, needed), nil
}

// nodeImages are what the node's own pods run.
func nodeImages(b build.Binaries) (cluster.Images, error) {
	images := cluster.Images{}
	for _, name := range []string{"pause", "coredns", "metrics-server"} {
		img, err := image.Build(image.Spec{Name: name, Files: map[string]string{"/" + name: b[name]}, Entrypoint: []string{"/" + name}})
		if err != nil {
			return nil, err
		}
		images[name] = img
	}
	return images, nil
}

func (s *settings) down(ctx context.Context) error {
	t, err := s.nodeTools()
	if err != nil {
		return err
	}
	if os.Getuid() != 0 {
		return errors.New("the local cluster needs root: run it with sudo")
	}
	release, err := t.store.Lock(ctx, "node")
	if err != nil {
		return err
	}
	defer release()
	return t.say.Step(ctx, "stopping the node", 5*time.Second, t.cluster.Down)
}

func (s *settings) build(ctx context.Context) error {
	t, err := s.tools()
	if err != nil {
		return err
	}
	missing, err := t.missingPackages(ctx)
	if err != nil {
		return err
	}
	if len(missing) > 0 && os.Getuid() == 0 && preflight.HasApt() {
		if err := preflight.Install(ctx, missing); err != nil {
			return err
		}
	}
	_, err = t.builder.All(ctx)
	return err
}

// browser installs what only tests of the web interface need.
func browser(ctx context.Context) error {
	missing := preflight.MissingPackages(ctx, []string{"chromium-headless-shell"})
	if len(missing) == 0 {
		return nil
	}
	if os.Getuid() != 0 || !preflight.HasApt() {
		return fmt.Errorf("%v is not installed, and only root can install it, with apt-get: do that first", missing)
	}
	return preflight.Install(ctx, missing)
}

func (s *settings) status(ctx context.Context) error {
	t, err := s.nodeTools()
	if err != nil {
		return err
	}
	if !t.cluster.HasState() {
		return errors.New("the node is not up: start it with up")
	}
	ill := 0
	for _, c := range t.cluster.Status(ctx) {
		fmt.Printf("%-24s %s\n", c.Name, c.State)
		if c.State != "healthy" {
			ill++
		}
	}
	if ill > 0 {
		return fmt.Errorf("%d components are not well: call up to restart what is dead", ill)
	}
	return nil
}

func (s *settings) kubeconfig(context.Context) error {
	t, err := s.nodeTools()
	if err != nil {
		return err
	}
	if !t.cluster.HasState() {
		return errors.New("the node is not up: start it with up")
	}
	fmt.Println(t.cluster.Node.Kubeconfig())
	return nil
}

func (s *settings) envoyFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.envoyVersion, "version", "", "one of the versions that parts/envoy pins, to test against (default: the one that is deployed)")
}

func (s *settings) envoy(ctx context.Context) error {
	t, err := s.tools()
	if err != nil {
		return err
	}
	path, err := t.builder.Envoy(ctx, s.envoyVersion)
	if err != nil {
		return err
	}
	fmt.Println(path)
	return nil
}

func (s *settings) images(ctx context.Context) error {
	t, err := s.tools()
	if err != nil {
		return err
	}
	_, err = t.skipperImages(ctx)
	return err
}

// kubectl is the user's own for an existing cluster where there is one.
func (s *settings) kubectl(ctx context.Context, t *tools) (deploy.Kubectl, error) {
	if s.cluster == clusterLocal {
		node := t.cluster.Node
		return deploy.Kubectl{Program: t.store.Path("bin", "kubectl"), Kubeconfig: node.Kubeconfig(), Env: node.Environment()}, nil
	}
	if path, err := exec.LookPath("kubectl"); err == nil {
		return deploy.Kubectl{Program: path}, nil
	}
	path, err := t.builder.Kubectl(ctx)
	return deploy.Kubectl{Program: path}, err
}

func (s *settings) overlayDir(t *tools) (string, error) {
	if s.overlay == "" {
		return filepath.Join(t.builder.Root, "deploy", "local", "overlay"), nil
	}
	return filepath.Abs(s.overlay)
}
