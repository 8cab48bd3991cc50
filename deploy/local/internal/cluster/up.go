package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"skipper/deploy/local/internal/host"
	"skipper/deploy/local/internal/image"
	"skipper/deploy/local/internal/proc"
	"skipper/deploy/local/internal/progress"
)

// Cluster starts and stops a node. The caller holds the lock of its state folder.
type Cluster struct {
	Node  Node
	Say   *progress.Reporter
	table proc.Table
}

// New returns the cluster of that node; nothing is started.
func New(n Node, say *progress.Reporter) *Cluster {
	return &Cluster{Node: n, Say: say, table: proc.Table{Dir: filepath.Join(n.State, "proc"), Mark: n.State}}
}

func (c *Cluster) record() string { return filepath.Join(c.Node.State, "host.json") }

func (c *Cluster) network() host.Network {
	return host.Network{Bridge: c.Node.Bridge, Address: c.Node.Address, Services: c.Node.Services}
}

// HasState tells whether the node was started before and not taken down.
func (c *Cluster) HasState() bool {
	_, err := os.Stat(c.record())
	return err == nil
}

// Running lists the components that run, healthy or not.
func (c *Cluster) Running() []string {
	var names []string
	for _, name := range startOrder() {
		if _, ok := c.table.Running(name); ok {
			names = append(names, name)
		}
	}
	return names
}

// MissingPorts lists what the components that do not run will listen on.
func (c *Cluster) MissingPorts() []string {
	var ports []string
	for _, name := range startOrder() {
		if _, ok := c.table.Running(name); !ok {
			ports = append(ports, c.Node.ports(name)...)
		}
	}
	return ports
}

// CleanStale takes the node down if its state belongs to an earlier boot or none of its
// components run: pods would look ready though their containers are gone.
func (c *Cluster) CleanStale(ctx context.Context) error {
	r, err := host.Load(c.record())
	if errors.Is(err, fs.ErrNotExist) {
		return os.RemoveAll(c.Node.State)
	}
	if err == nil && r.Boot == host.Boot() && len(c.Running()) > 0 {
		return nil
	}
	c.Say.Line("the node of an earlier run is dead: cleaning up after it")
	return c.Down(ctx)
}

// Images is what the node's own pods run, by name.
type Images map[string]image.Image

func (i Images) refs() map[string]string {
	refs := map[string]string{}
	for name, img := range i {
		refs[name] = img.Ref
	}
	return refs
}

// Up starts what does not run, waits until the node is ready and its DNS and metrics answer.
// Components that run as wanted are left alone, so a second call does nothing.
func (c *Cluster) Up(ctx context.Context, images Images) error {
	if err := c.prepare(ctx, images.refs()); err != nil {
		return err
	}
	api, err := c.Node.client()
	if err != nil {
		return err
	}
	return c.Say.Step(ctx, "starting the node", 15*time.Second, func(ctx context.Context) error {
		if err := c.startComponents(ctx, api, images); err != nil {
			return err
		}
		if err := c.apply(ctx, images.refs()); err != nil {
			return err
		}
		return c.waitReady(ctx, api)
	})
}

// prepare makes folders, network, certificates and configuration.
func (c *Cluster) prepare(ctx context.Context, refs map[string]string) error {
	for _, dir := range []string{"proc", "logs", "kubelet", "volume-plugins", "images", "tmp"} {
		if err := os.MkdirAll(filepath.Join(c.Node.State, dir), 0o755); err != nil {
			return fmt.Errorf("make state folder: %w", err)
		}
	}
	if !c.HasState() { // before the first change to the machine
		if err := host.Look().Save(c.record()); err != nil {
			return err
		}
	}
	if err := c.network().Prepare(ctx); err != nil {
		return err
	}
	if err := c.Node.writePKI(time.Now()); err != nil {
		return err
	}
	return c.Node.writeConfig(refs)
}

// startComponents starts them in waves: those that need nothing, the API server, the rest.
// The kubelet needs containerd's images, and kube-proxy the kubelet's Node object: it ends when
// the node's address appears later than itself.
func (c *Cluster) startComponents(ctx context.Context, api *client, images Images) error {
	waves := [][]string{
		{"containerd", "etcd"},
		{"kube-apiserver"},
		{"kube-controller-manager", "kube-scheduler"},
	}
	for _, wave := range waves {
		if err := c.start(ctx, api, wave); err != nil {
			return err
		}
	}
	for _, img := range images {
		if err := c.Import(ctx, img); err != nil {
			return err
		}
	}
	if err := c.start(ctx, api, []string{"kubelet"}); err != nil {
		return err
	}
	if err := c.waitRegistered(ctx, api); err != nil {
		return err
	}
	return c.start(ctx, api, []string{"kube-proxy"})
}

func (c *Cluster) start(ctx context.Context, api *client, names []string) error {
	for _, name := range names {
		if err := c.ensureProcess(ctx, c.Node.component(name)); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := c.waitHealthy(ctx, api, c.Node.component(name)); err != nil {
			return err
		}
	}
	return nil
}

// ensureProcess leaves a process alone that runs as wanted, and otherwise starts it anew.
func (c *Cluster) ensureProcess(ctx context.Context, m component) error {
	identity, err := c.Node.identity(m)
	if err != nil {
		return err
	}
	r, running := c.table.Running(m.name)
	if running && r.Identity == identity {
		return nil
	}
	if running {
		c.Say.Line("restarting %s: its version or configuration changed", m.name)
		if err := c.table.Stop(ctx, stopGrace, m.name); err != nil {
			return err
		}
	}
	return c.table.Start(proc.Spec{
		Name:     m.name,
		Argv:     m.argv,
		Env:      c.Node.Environment(),
		Log:      c.log(m.name),
		Identity: identity,
	})
}

func (c *Cluster) log(name string) string { return filepath.Join(c.Node.State, "logs", name+".log") }

func (c *Cluster) waitRegistered(ctx context.Context, api *client) error {
	return WaitFor(ctx, "the node's registration", time.Minute, func(ctx context.Context) (bool, error) {
		_, err := api.get(ctx, c.Node.API()+"/api/v1/nodes/"+c.Node.Name)
		return true, err
	})
}

func (c *Cluster) waitHealthy(ctx context.Context, api *client, m component) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := WaitFor(ctx, m.name, m.limit, func(ctx context.Context) (bool, error) {
		if _, ok := c.table.Running(m.name); !ok {
			cancel(errors.New("it has ended"))
		}
		return true, c.probe(ctx, api, m)
	})
	if err != nil {
		return fmt.Errorf("%w\nthe end of %s:\n%s", err, c.log(m.name), lastLines(c.log(m.name)))
	}
	return nil
}

func (c *Cluster) probe(ctx context.Context, api *client, m component) error {
	if m.health == "" {
		return dial(ctx, c.Node.socket())
	}
	_, err := api.get(ctx, m.health)
	return err
}

// waitReady waits for what a user of the cluster needs.
func (c *Cluster) waitReady(ctx context.Context, api *client) error {
	for _, w := range []struct{ what, path, kind string }{
		{"the node", "/api/v1/nodes/" + c.Node.Name, "Ready"},
		{"CoreDNS", "/apis/apps/v1/namespaces/kube-system/deployments/coredns", "Available"},
		{"the metrics API", "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io", "Available"},
	} {
		err := WaitFor(ctx, w.what, 2*time.Minute, func(ctx context.Context) (bool, error) {
			return api.condition(ctx, w.path, w.kind)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Import gives the image to containerd unless it has it.
func (c *Cluster) Import(ctx context.Context, img image.Image) error {
	list, err := c.ctr(ctx, "images", "ls", "-q")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(list)) {
		if strings.TrimSpace(line) == img.Ref {
			return nil
		}
	}
	path := filepath.Join(c.Node.State, "images", "import.tar")
	defer func() { _ = os.Remove(path) }()
	if err := img.Write(path); err != nil {
		return err
	}
	_, err = c.ctr(ctx, "images", "import", path)
	return err
}

func (c *Cluster) ctr(ctx context.Context, args ...string) ([]byte, error) {
	args = append([]string{"-a", c.Node.socket(), "-n", "k8s.io"}, args...)
	return output(exec.CommandContext(ctx, c.Node.program("ctr"), args...))
}

// apply gives the manifests of DNS, metrics and the API server's right to call the kubelet.
func (c *Cluster) apply(ctx context.Context, refs map[string]string) error {
	manifests, err := c.Node.manifests(refs)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, c.Node.program("kubectl"), "--kubeconfig", c.Node.Kubeconfig(), "apply", "--server-side", "--force-conflicts", "-f", "-")
	cmd.Stdin = bytes.NewReader(manifests)
	cmd.Env = c.Node.Environment()
	_, err = output(cmd)
	return err
}

// output runs a short command; what it wrote to its error stream is part of the error.
func output(cmd *exec.Cmd) ([]byte, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run %s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(errs.String()))
	}
	return out.Bytes(), nil
}

// lastLines returns the end of a log, where the cause of an early death stands.
func lastLines(path string) string {
	const bytes = 2000
	content, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(content[max(0, len(content)-bytes):])
}
