package hollow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

const (
	controllerLabel = "app.kubernetes.io/name"
	controllerName  = "hollow-controller"
)

// ControllerConfig is how a controller is started.
type ControllerConfig struct {
	// Binary is the controller's program.
	Binary string
	// IP of the loopback network that is the controller's own.
	IP            string
	Port, WebPort uint16
	// Kubeconfig and KeyFile are paths.
	Kubeconfig, KeyFile string
	Namespace           string
	// TLSDir holds tls.crt, tls.key and ca.crt; empty is plaintext.
	TLSDir string
	// Args are further flags.
	Args []string
	Log  io.Writer
}

// Controller is a controller process.
type Controller struct {
	cfg  ControllerConfig
	cmd  *exec.Cmd
	done chan struct{}
}

// StartController starts the process; Kill must be called.
func StartController(ctx context.Context, cfg ControllerConfig) (*Controller, error) {
	args := append([]string{
		"--host", cfg.IP, "--pod-ip", cfg.IP, "--port", strconv.Itoa(int(cfg.Port)), "--web-port", strconv.Itoa(int(cfg.WebPort)),
		"--kubeconfig", cfg.Kubeconfig, "--namespace", cfg.Namespace, "--function-namespaces", cfg.Namespace,
		"--paseto-private-key-file", cfg.KeyFile, "--controller-selector", controllerLabel + "=" + controllerName,
	}, append(trustArgs(cfg.TLSDir), cfg.Args...)...)
	c := &Controller{cfg: cfg, cmd: exec.CommandContext(ctx, cfg.Binary, args...), done: make(chan struct{})}
	c.cmd.Env = []string{}
	c.cmd.Stdout, c.cmd.Stderr = cfg.Log, cfg.Log
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Binary, err)
	}
	go func() {
		defer close(c.done)
		_ = c.cmd.Wait() // how it ended is in its log
	}()
	return c, nil
}

func trustArgs(dir string) []string {
	if dir == "" {
		return []string{"--insecure-plaintext"}
	}
	return []string{
		"--tls-cert-file", filepath.Join(dir, "tls.crt"), "--tls-key-file", filepath.Join(dir, "tls.key"), "--tls-ca-file", filepath.Join(dir, "ca.crt"),
	}
}

// Addr is where the controller serves gRPC.
func (c *Controller) Addr() string {
	return net.JoinHostPort(c.cfg.IP, strconv.Itoa(int(c.cfg.Port)))
}

// Web is the URL of its metrics and probes.
func (c *Controller) Web() string {
	return "http://" + net.JoinHostPort(c.cfg.IP, strconv.Itoa(int(c.cfg.WebPort)))
}

// Freeze stops the process without ending it: it falls silent, and its
// connections stay.
func (c *Controller) Freeze() error { return c.cmd.Process.Signal(syscall.SIGSTOP) }

// Stop ends the process as an orderly shutdown does, and returns when it has ended.
func (c *Controller) Stop() error {
	err := c.cmd.Process.Signal(syscall.SIGTERM)
	<-c.done
	return err
}

// Kill ends the process as kill -9 does, and returns when it has ended. It may
// be called again.
func (c *Controller) Kill() {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return // it has ended, or the system denies it: then Wait tells
	}
	<-c.done
}
