//go:build e2e

package e2e_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// previous is the release that installations are upgraded from.
var previous = flag.String("e2e.previous", "1cabf71", "`commit` whose controllers and extprocs the tests of upgrades begin with")

// release is a version of Skipper's own programs: images by the names of their containers.
type release map[string]string

// previousRelease builds the programs of the previous release, keeps them in the user's cache, and gives them to the
// local node until the end of the test.
func previousRelease(t *testing.T) release {
	t.Helper()
	commit := commitOf(t, *previous)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "skipper", "e2e", commit)
	r := release{}
	for _, program := range []string{"controller", "extproc"} {
		r[program] = fmt.Sprintf("docker.io/local/skipper-%s:commit-%.12s", program, commit)
	}
	if _, err := os.Stat(dir); err != nil {
		buildRelease(t, commit, dir)
	}
	work := t.TempDir()
	for program, ref := range r {
		archive := filepath.Join(work, program+".tar")
		packImage(t, filepath.Join(dir, program), ref, archive)
		ctr(t, "images", "import", archive)
		t.Cleanup(func() { ctr(t, "images", "rm", ref) })
	}
	return r
}

// commitOf skips the test where the history does not reach so far, as in a shallow clone.
func commitOf(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("git", "rev-parse", "--verify", "--quiet", name+"^{commit}").CombinedOutput()
	if err != nil {
		t.Skipf("commit %s is not in this clone: fetch the whole history (git fetch --unshallow), or name another with -e2e.previous: %v: %s", name, err, out)
	}
	return strings.TrimSpace(string(out))
}

// buildRelease leaves the programs of a commit in dir, or nothing.
func buildRelease(t *testing.T, commit, dir string) {
	t.Helper()
	source, archive, programs := t.TempDir(), filepath.Join(t.TempDir(), "source.tar"), dir+".new"
	mustRun(t, "../..", "git", "archive", "--output", archive, commit)
	mustRun(t, source, "tar", "-xf", archive)
	if err := os.MkdirAll(programs, 0o755); err != nil {
		t.Fatal(err)
	}
	mustRun(t, source, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", programs, "./cmd/controller", "./cmd/extproc")
	if err := os.Rename(programs, dir); err != nil {
		t.Fatal(err)
	}
}

func mustRun(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
}

// packImage writes an archive with an image of one static program, as Dockerfile makes them.
func packImage(t *testing.T, program, ref, archive string) {
	t.Helper()
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	entry := "/" + filepath.Base(program)
	layer := tarOf(t, map[string][]byte{entry: content})
	config := map[string]any{
		"os": "linux", "architecture": runtime.GOARCH,
		"config": map[string]any{"User": "65532:65532", "Entrypoint": []string{entry}, "WorkingDir": "/"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	}
	manifest := []map[string]any{{"Config": "config.json", "RepoTags": []string{ref}, "Layers": []string{"layer.tar"}}}
	all := tarOf(t, map[string][]byte{"config.json": mustJSON(t, config), "manifest.json": mustJSON(t, manifest), "layer.tar": layer})
	if err := os.WriteFile(archive, all, 0o600); err != nil {
		t.Fatal(err)
	}
}

func tarOf(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, content := range files {
		header := &tar.Header{Name: strings.TrimPrefix(name, "/"), Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
