package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// measure runs what was asked for and writes the page.
func measure(ctx context.Context, o options) error {
	page := head(ctx)
	if o.only != "cold" {
		warm, err := measureWarm(ctx, o)
		if err != nil {
			return fmt.Errorf("measure warm requests: %w", err)
		}
		page += warmIntro + warm
	}
	if o.only != "warm" {
		cold, err := measureCold(ctx, o.gateway, o.samples)
		if err != nil {
			return fmt.Errorf("measure cold starts: %w", err)
		}
		page += coldIntro + cold
	}
	fmt.Println(page)
	if o.only != "" { // half a page must not replace a whole one
		return nil
	}
	return os.WriteFile(o.out, []byte(page), 0o644) //nolint:gosec // a page of the documentation
}

const warmIntro = `
## P1: a warm request

One small answer through each contestant, in turn, round by round; minimum / median / maximum over the rounds. The load
program, the backend and the contestants share the machine's cores, so compare rows, not machines. CPU is that of the
contestant's own programs per answered request.

`

const coldIntro = `
## P2: a cold start

One by one on the local cluster: a tenant's first request through Envoy until the response's headers, then one patch of
the same pod and one POST to it; the kubelet refills the pool, and takes used pods away, during the next samples.

`

// head says what was measured on what.
func head(ctx context.Context) string {
	commit := "unknown"
	if out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		commit = strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("# Benchmarks\n\nWritten by `make bench`: commit %s, %s, %d cores (%s), %s, Envoy 1.40.0.\n",
		commit, time.Now().UTC().Format("2006-01-02"), runtime.NumCPU(), cpuModel(), runtime.Version())
}

func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	_, rest, _ := strings.Cut(string(b), "model name")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(strings.TrimLeft(line, " \t:"))
}
