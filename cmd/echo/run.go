package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"

	"skipper/cmd/echo/internal/echo"
	"skipper/function"
)

// run serves until ctx ends and the requests in progress with it.
func run(ctx context.Context, cfg *config, crash func()) error {
	if err := cfg.validate(); err != nil {
		return fmt.Errorf("check flags: %w", err)
	}
	log, err := newLogger(cfg.logLevel)
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }() // stderr of a container cannot be synced
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", cfg.server.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", cfg.server.Listen, err)
	}
	return serve(ctx, ln, cfg, log, crash)
}

// serve answers on ln, which it closes.
func serve(ctx context.Context, ln net.Listener, cfg *config, log *zap.Logger, crash func()) error {
	defer func() { _ = ln.Close() }() // closed already where it served
	member, err := cfg.function(log)
	if err != nil {
		return err
	}
	pod, err := function.New(member)
	if err != nil {
		return err
	}
	answers := echo.New(echo.Config{
		PodName: member.PodName, PodUID: member.PodUID, Pod: pod, Crash: cfg.crash(crash), Log: log,
	})
	defer answers.Close()
	log.Info("serving", zap.Stringer("address", ln.Addr()), zap.String("pod", member.PodName), zap.String("uid", member.PodUID),
		zap.Int("public_key_files", len(member.PublicKeyFiles)), zap.Bool("ignore_instance", cfg.ignoreInstance))
	server := cfg.server
	server.Logger = log.Named("http")
	err = server.Serve(ctx, ln, cfg.handler(pod, answers))
	log.Info("stopped", zap.Error(err))
	return err
}

// function is the configuration of the pod's membership: the environment's, and the flags over it.
func (c *config) function(log *zap.Logger) (function.Config, error) {
	member, err := function.FromEnv()
	if err != nil {
		return function.Config{}, err
	}
	if c.podName != "" {
		member.PodName = c.podName
	}
	if c.podUID != "" {
		member.PodUID = c.podUID
	}
	if len(c.publicKeyFiles) > 0 {
		member.PublicKeyFiles = c.publicKeyFiles
	}
	member.AssignPath = c.assignPath
	member.AcceptAnyToken, member.AllowDirect = c.acceptAnyToken, c.allowDirect
	member.OnAssign = c.onAssign
	member.Logger = log.Named("function")
	return member, nil
}

// onAssign plays slow and unwilling images.
func (c *config) onAssign(ctx context.Context, a function.Assignment) error {
	if c.assignDelay > 0 {
		timer := time.NewTimer(c.assignDelay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for --assign-delay: %w", ctx.Err())
		}
	}
	if c.refuseAssignment {
		return errors.New("this image refuses every assignment: --refuse-assignment is set")
	}
	if slices.Contains(c.refuseTenants, a.Tenant()) {
		return errors.New("this image refuses the tenant: --refuse-tenant names it")
	}
	return nil
}

func (c *config) handler(pod *function.Pod, answers http.Handler) http.Handler {
	if c.ignoreInstance {
		return pod.Endpoints(answers)
	}
	return pod.Handler(answers)
}

func (c *config) crash(crash func()) func() {
	if !c.allowCrash {
		return nil
	}
	return crash
}

// newLogger writes every line as JSON to stderr, none left out.
func newLogger(level string) (*zap.Logger, error) {
	parsed, err := zap.ParseAtomicLevel(level)
	if err != nil {
		return nil, fmt.Errorf("parse log level: %w", err)
	}
	cfg := zap.NewProductionConfig()
	cfg.Level, cfg.Sampling = parsed, nil
	log, err := cfg.Build()
	if err != nil {
		return nil, fmt.Errorf("build logger: %w", err)
	}
	return log, nil
}
