package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"skipper/test/bench/internal/report"
)

// section is a part of the page that can be measured alone.
type section struct {
	key, title, intro string
	measure           func(context.Context, options) (string, error)
}

func sections() []section {
	return []section{
		{"warm", "P1: a warm request", warmIntro, measureWarm},
		{"cold", "P2: a cold start", coldIntro, func(ctx context.Context, o options) (string, error) {
			return measureCold(ctx, o.gateway, o.samples)
		}},
		{"claims", "P3: claims", claimsIntro, measureClaims},
		{"updates", "P4: endpoint updates", updatesIntro, measureUpdates},
		{"fleet", "P5: a fleet", fleetIntro, measureFleet},
		{"held", "P6: requests held open", heldIntro, measureHeld},
	}
}

// measure runs what was asked for and writes those sections into the page.
func measure(ctx context.Context, o options) error {
	known := false
	for _, s := range sections() {
		if o.only != "" && o.only != s.key {
			continue
		}
		known = true
		table, err := s.measure(ctx, o)
		if err != nil {
			return fmt.Errorf("measure %s: %w", s.key, err)
		}
		body := s.intro + table + "\n" + origin(ctx)
		fmt.Println("## " + s.title + "\n\n" + body)
		if err := write(o.out, s.title, body); err != nil {
			return err
		}
	}
	if !known {
		return fmt.Errorf("--only %s: there is no such part", o.only)
	}
	return nil
}

// write replaces one section of the page; the others stay.
func write(path, title, body string) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read page: %w", err)
	}
	page := report.ReadPage(string(old))
	page.Head = pageHead
	page.Sections[title] = body
	return os.WriteFile(path, []byte(page.Markdown()), 0o644) //nolint:gosec // a page of the documentation
}

const pageHead = `# Benchmarks

Written by ` + "`make bench`" + `; each section says from which commit, and can be measured alone (` + "`go run ./test/bench --only claims`" + `).
`

const warmIntro = `One small answer through each contestant, in turn, round by round; minimum / median / maximum over the rounds. The load
program, the backend and the contestants share the machine's cores, so compare rows, not machines. CPU is that of the
contestant's own programs per answered request. The load program is wrk for HTTP/1.1 and h2load for HTTP/2 without TLS, each with
one thread and one request in progress per connection; contestants speak HTTP/1.1 to the backend in either case.

`

const coldIntro = `One by one on the local cluster: a tenant's first request through Envoy until the response's headers, then one patch of
the same pod and one POST to it; the kubelet refills the pool, and takes used pods away, during the next samples.

`

const claimsIntro = `First claims of new tenants on pods of a hollow node, by clients that ask all controllers in turn, beside bare JSON patches
of such pods by as many clients just before; minimum / median / maximum over the rounds. A claim is two writes, the claim
and ready-at, which is why the aim is 80 % of half the rival's rate, with fewer than 2 % lost races and nothing claimed
twice. Claimed pods are not replaced meanwhile, and each is also patched by its ReplicaSet's controller, which lets go of it.

`

// buildProgram builds a program of cmd as images have it, into dir.
func buildProgram(ctx context.Context, dir, name string) (string, error) {
	binary := filepath.Join(dir, name)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "./cmd/"+name)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", name, err, out)
	}
	return binary, nil
}

// origin says what was measured on what.
func origin(ctx context.Context) string {
	commit := "unknown"
	if out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		commit = strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("Commit %s, %s, %d cores (%s), %s, Envoy 1.40.0.\n",
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
