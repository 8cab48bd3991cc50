package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"skipper/deploy/local/internal/host"
	"skipper/deploy/local/internal/proc"
)

// stopGrace is how long a component may take to end in order.
const stopGrace = 10 * time.Second

// ErrLeft says that something of the node is still on the machine.
var ErrLeft = errors.New("left behind")

// Down stops the node in an order in which no component revives what another has ended, and
// puts the machine back as it was. It works from any state, half-started ones included, and
// ends with a check: an error that wraps ErrLeft lists what is still there.
func (c *Cluster) Down(ctx context.Context) error {
	r, err := host.Load(c.record())
	if errors.Is(err, fs.ErrNotExist) {
		proc.KillAll(ctx, c.table.Marked())
		return os.RemoveAll(c.Node.State)
	}
	if err != nil {
		return err
	}
	if r.Boot != host.Boot() {
		// Process ids and start times of an earlier boot name other programs now.
		if err := os.RemoveAll(c.table.Dir); err != nil {
			return fmt.Errorf("forget processes of an earlier boot: %w", err)
		}
	}
	stopErr := c.stopProcesses(ctx)
	restoreErr := r.Restore(ctx, c.network(), c.Node.State)
	if left := c.left(ctx, r); len(left) > 0 {
		return fmt.Errorf("%w: %s: %w", ErrLeft, strings.Join(left, ", "), errors.Join(stopErr, restoreErr))
	}
	return os.RemoveAll(c.Node.State)
}

func (c *Cluster) stopProcesses(ctx context.Context) error {
	errs := []error{
		c.table.Stop(ctx, stopGrace, "kubelet", "kube-scheduler", "kube-controller-manager", "kube-proxy"),
		c.killPods(ctx),
		c.table.Stop(ctx, stopGrace, "kube-apiserver"),
		c.table.Stop(ctx, stopGrace, "etcd", "containerd"),
	}
	// The shims of containers, and whatever a killed start had no time to record.
	if left := proc.KillAll(ctx, c.table.Marked()); len(left) > 0 {
		errs = append(errs, fmt.Errorf("processes %v do not end", left))
	}
	return errors.Join(append(errs, c.killPods(ctx))...)
}

// killPods kills what runs in the cgroups of pods until nothing is left there: a process may
// start another between the look and the kill.
func (c *Cluster) killPods(ctx context.Context) error {
	const rounds = 10
	for range rounds {
		pids := host.PodProcesses()
		if len(pids) == 0 {
			return nil
		}
		if left := proc.KillAll(ctx, pids); len(left) > 0 {
			return fmt.Errorf("processes of pods %v do not end", left)
		}
	}
	return errors.New("pods go on starting processes")
}

func (c *Cluster) left(ctx context.Context, r host.Record) []string {
	left := r.Left(ctx, c.network(), c.Node.State)
	for _, pid := range c.table.Marked() {
		left = append(left, "process "+strconv.Itoa(pid))
	}
	return left
}
