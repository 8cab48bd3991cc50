// Package envoytest runs the real Envoy in tests: it finds the program, starts
// it on a bootstrap, waits until it is ready and stops it with the test. It
// knows nothing of Skipper but where its cache keeps the program.
package envoytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"

	"skipper/envoy"
)

const (
	// patience bounds every wait; machines that run many tests are slow.
	patience = 60 * time.Second
	// every is how often a condition is looked at again.
	every = 10 * time.Millisecond
	// stopTime is how long Envoy may take to end when asked.
	stopTime = 10 * time.Second
)

// Find returns the path of the Envoy program: environment variable
// SKIPPER_ENVOY, else where the local cluster's builder puts it. Without one
// the test fails, or is skipped if SKIPPER_ENVOY_OPTIONAL is 1.
func Find(t testing.TB) string {
	t.Helper()
	path, err := find()
	if err == nil {
		return path
	}
	if os.Getenv("SKIPPER_ENVOY_OPTIONAL") == "1" {
		t.Skipf("no Envoy: %v", err)
	}
	t.Fatalf("no Envoy: %v; run `make up` once, which fetches it, or name a program of version 1.40 in SKIPPER_ENVOY", err)
	return ""
}

func find() (string, error) {
	path := os.Getenv("SKIPPER_ENVOY")
	if path == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find the cache folder: %w", err)
		}
		path = filepath.Join(dir, "skipper", "bin", "envoy")
	}
	_, err := os.Stat(path)
	return path, err
}

// Validate has Envoy check b without running it and fails the test with
// Envoy's words, warnings included, unless it is content.
func Validate(t testing.TB, b *bootstrapv3.Bootstrap) {
	t.Helper()
	cmd := command(t, Find(t), write(t, b), "--mode", "validate")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("Envoy refuses the bootstrap: %v\n%s", err, out)
	}
	if warns(string(out)) {
		t.Errorf("Envoy warns of the bootstrap:\n%s", out)
	}
}

// warns finds warnings, but for those of unfinished messages that are used on
// purpose; package envoy says why.
func warns(out string) bool {
	for line := range strings.Lines(out) {
		known := strings.Contains(line, ".custom_response.") && strings.Contains(line, "marked as work-in-progress")
		if strings.Contains(line, "][warning]") && !known {
			return true
		}
	}
	return false
}

// Envoy is a running Envoy. Its methods may be called from any goroutine.
type Envoy struct {
	admin *http.Client
	cmd   *exec.Cmd
	out   *buffer
	ended chan struct{} // closed when the process has ended
}

// Start runs Envoy on b until the end of the test and returns once it is
// ready; see Launch.
func Start(t testing.TB, b *bootstrapv3.Bootstrap) *Envoy {
	t.Helper()
	e := Launch(t, b)
	e.WaitReady(t)
	return e
}

// Launch runs Envoy on b until the end of the test, and does not wait. The
// bootstrap must have an admin address of its own. The output of Envoy is
// logged if the test fails.
func Launch(t testing.TB, b *bootstrapv3.Bootstrap) *Envoy {
	t.Helper()
	return LaunchProgram(t, Find(t), b)
}

// LaunchProgram is Launch for another program than the one that Find returns,
// such as an older Envoy, and with more arguments.
func LaunchProgram(t testing.TB, program string, b *bootstrapv3.Bootstrap, args ...string) *Envoy {
	t.Helper()
	e := &Envoy{admin: adminClient(b), out: &buffer{}, ended: make(chan struct{})}
	e.cmd = command(t, program, write(t, b), append([]string{"--disable-hot-restart", "--concurrency", "2"}, args...)...)
	e.cmd.Stdout, e.cmd.Stderr = e.out, e.out
	if err := e.cmd.Start(); err != nil {
		t.Fatalf("start Envoy: %v", err)
	}
	go func() {
		defer close(e.ended)
		_ = e.cmd.Wait() // how it ended is seen in its output
	}()
	t.Cleanup(func() {
		e.Stop()
		if t.Failed() {
			t.Logf("output of Envoy:\n%s", e.Output())
		}
	})
	return e
}

// Stop ends the process and waits for it. Stopping twice is harmless.
func (e *Envoy) Stop() {
	defer e.admin.CloseIdleConnections()
	_ = e.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(stopTime)
	defer timer.Stop()
	select {
	case <-e.ended:
	case <-timer.C:
		_ = e.cmd.Process.Kill()
		<-e.ended
	}
}

// Output is what Envoy has written so far: its own log and the access log.
func (e *Envoy) Output() string { return e.out.String() }

// Pid is the process id.
func (e *Envoy) Pid() int { return e.cmd.Process.Pid }

// Admin asks the admin interface and returns status and body; path begins
// with a slash. A POST is sent where the path changes something.
func (e *Envoy) Admin(ctx context.Context, method, path string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://admin"+path, nil)
	if err != nil {
		return 0, "", fmt.Errorf("make admin request: %w", err)
	}
	res, err := e.admin.Do(req)
	if err != nil {
		return 0, "", fmt.Errorf("ask admin: %w", err)
	}
	body, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return 0, "", fmt.Errorf("read admin answer: %w", err)
	}
	return res.StatusCode, string(body), nil
}

// WaitReady returns once Envoy takes requests, and fails the test if it ends
// or is not ready in time.
func (e *Envoy) WaitReady(t testing.TB) {
	t.Helper()
	Eventually(t, "Envoy is ready", func() bool {
		select {
		case <-e.ended:
			t.Fatal("Envoy ended by itself")
		default:
		}
		status, _, err := e.Admin(t.Context(), http.MethodGet, "/ready")
		return err == nil && status == http.StatusOK
	})
}

// Eventually looks at a condition until it holds, and fails the test if that
// takes too long.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited %v in vain until: %s", patience, what)
		}
	}
}

// SocketDir returns a folder whose path is short enough for sockets, removed
// with the test.
func SocketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "skipper") //nolint:usetesting // t.TempDir is too long for sockets under long test names
	if err != nil {
		t.Fatalf("make folder for sockets: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove folder for sockets: %v", err)
		}
	})
	return dir
}

func command(t testing.TB, program, file string, args ...string) *exec.Cmd {
	t.Helper()
	all := append([]string{"-c", file, "--service-node", "envoytest", "--service-cluster", "envoytest"}, args...)
	// The process outlives the test's context, which ends before clean-up.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, all...)
	// A test binary that is killed, as by a timeout, runs no clean-up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func write(t testing.TB, b *bootstrapv3.Bootstrap) string {
	t.Helper()
	text, err := envoy.YAML(b)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "bootstrap.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatalf("write bootstrap: %v", err)
	}
	return file
}

// adminClient dials the admin address of b, whatever host a URL names.
func adminClient(b *bootstrapv3.Bootstrap) *http.Client {
	network, address := "unix", b.GetAdmin().GetAddress().GetPipe().GetPath()
	if s := b.GetAdmin().GetAddress().GetSocketAddress(); s != nil {
		network, address = "tcp", net.JoinHostPort(s.GetAddress(), fmt.Sprint(s.GetPortValue()))
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		if address == "" {
			return nil, errors.New("the bootstrap has no admin address")
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial}}
}

// buffer is a strings.Builder for several goroutines.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
