package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"skipper/deploy/local/internal/cache"
	"skipper/deploy/local/internal/progress"
)

// Builder fills the cache. Root is the project's folder, the one with go.mod of module
// skipper. It is safe for concurrent use.
type Builder struct {
	Root  string
	Store *cache.Store
	Say   *progress.Reporter
}

// Binaries maps a program's name to its absolute path in the cache.
type Binaries map[string]string

// All makes sure that every part and Envoy are in the cache and links their programs, and
// kubectl, in its bin folder.
func (b Builder) All(ctx context.Context) (Binaries, error) {
	all := Binaries{}
	for _, p := range Parts() {
		if err := b.add(ctx, p, all); err != nil {
			return nil, err
		}
	}
	envoy, err := b.Envoy(ctx, "")
	if err != nil {
		return nil, err
	}
	all["envoy"] = envoy
	return all, nil
}

// Kubectl makes sure of kubectl alone and returns its path.
func (b Builder) Kubectl(ctx context.Context) (string, error) {
	all := Binaries{}
	if err := b.add(ctx, Parts()[0], all); err != nil {
		return "", err
	}
	return b.Store.Path("bin", "kubectl"), nil
}

func (b Builder) add(ctx context.Context, p Part, all Binaries) error {
	dir, err := b.Part(ctx, p)
	if err != nil {
		return err
	}
	for _, name := range p.Programs() {
		all[name] = filepath.Join(dir, name)
		if _, err := b.Store.Link(name, all[name]); err != nil {
			return err
		}
	}
	if p.Name != "kube" {
		return nil
	}
	_, err = b.Store.Link("kubectl", all["kube"])
	return err
}

// Part makes sure that the part is built and returns its folder in the cache.
func (b Builder) Part(ctx context.Context, p Part) (string, error) {
	a, err := b.artefact(ctx, p)
	if err != nil {
		return "", err
	}
	return b.Store.Ensure(ctx, a, func(ctx context.Context, dir string) error {
		return b.Say.Step(ctx, "building "+p.Name, p.Usual, func(ctx context.Context) error {
			return b.compile(ctx, b.source(p), dir, p)
		})
	})
}

// Missing returns the parts that are not built yet, and whether Envoy is not fetched yet.
func (b Builder) Missing(ctx context.Context) (parts []Part, envoy bool, err error) {
	for _, p := range Parts() {
		a, err := b.artefact(ctx, p)
		if err != nil {
			return nil, false, err
		}
		if _, err := b.Store.Find(a); errors.Is(err, cache.ErrMissing) {
			parts = append(parts, p)
		}
	}
	w, err := b.wheel("")
	if err != nil {
		return nil, false, err
	}
	a, err := w.artefact()
	if err != nil {
		return nil, false, err
	}
	_, err = b.Store.Find(a)
	return parts, errors.Is(err, cache.ErrMissing), nil
}

func (b Builder) source(p Part) string {
	return filepath.Join(b.Root, "deploy", "local", "parts", p.Name)
}

func (b Builder) artefact(ctx context.Context, p Part) (cache.Artefact, error) {
	version, err := exec.CommandContext(ctx, "go", "env", "GOVERSION").Output()
	if err != nil {
		return cache.Artefact{}, fmt.Errorf("ask go for its version (is Go installed?): %w", err)
	}
	goVersion := strings.TrimSpace(string(version)) + " " + runtime.GOARCH
	key, err := p.Key(os.DirFS(b.source(p)), goVersion)
	if err != nil {
		return cache.Artefact{}, err
	}
	return cache.Artefact{Name: p.Name, Key: key, Files: p.Programs()}, nil
}

// compile runs go build in source with the part's programs going to dir.
func (b Builder) compile(ctx context.Context, source, dir string, p Part) error {
	// The state of the surrounding repository must not change the programs.
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", dir + string(filepath.Separator)}
	args = append(append(args, p.Args...), p.Packages...)
	return b.run(ctx, source, p.Env, "go", args...)
}

// Own builds the project's own commands as static programs and returns them by name. A
// command without sources is left out, with a line that says so.
func (b Builder) Own(ctx context.Context, commands ...string) (Binaries, error) {
	release, err := b.Store.Lock(ctx, "own")
	if err != nil {
		return nil, err
	}
	defer release()
	dir := b.Store.Path("own")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder for programs: %w", err)
	}
	own := Binaries{}
	p := Part{Name: "own", Env: []string{"CGO_ENABLED=0"}, Args: []string{"-ldflags", strip}}
	for _, c := range commands {
		if sources, err := filepath.Glob(filepath.Join(b.Root, "cmd", c, "*.go")); err != nil || len(sources) == 0 {
			b.Say.Line("skipping cmd/%s: there is no such program", c)
			continue
		}
		p.Packages = append(p.Packages, "./cmd/"+c)
		own[c] = filepath.Join(dir, c)
	}
	if len(own) == 0 {
		return own, nil
	}
	err = b.Say.Step(ctx, "building "+strings.Join(p.Programs(), ", "), 40*time.Second, func(ctx context.Context) error {
		return b.compile(ctx, b.Root, dir, p)
	})
	return own, err
}

// run executes a program that must not outlive this one, with its temporary files inside the
// cache; what it printed is part of the error.
func (b Builder) run(ctx context.Context, dir string, env []string, name string, args ...string) error {
	// The death signal is bound to the thread that started the program.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	temp, err := os.MkdirTemp(b.Store.Path("tmp"), name)
	if err != nil {
		return fmt.Errorf("make temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOTOOLCHAIN=local", "GOWORK=off", "TMPDIR="+temp), env...)
	cmd.SysProcAttr = endWithParent()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s %s: %w\n%s", name, args[0], err, tail(output.String()))
	}
	return nil
}

// tail keeps the last lines: the cause stands there.
func tail(s string) string {
	const lines = 20
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
