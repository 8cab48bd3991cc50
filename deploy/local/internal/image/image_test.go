package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func program(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func build(t *testing.T, s Spec) Image {
	t.Helper()
	img, err := Build(s)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func spec(path string) Spec {
	return Spec{Name: "app", Files: map[string]string{"/bin/app": path, "/app": path}, Entrypoint: []string{"/app"}}
}

func TestEqualContentGivesEqualReference(t *testing.T) {
	first, second := program(t, "content"), program(t, "content")
	old := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := os.Chtimes(second, old, old); err != nil {
		t.Fatal(err)
	}
	if a, b := build(t, spec(first)), build(t, spec(second)); a.Ref != b.Ref {
		t.Errorf("references %s and %s, want equal", a.Ref, b.Ref)
	}
}

func TestEveryChangeGivesAnotherReference(t *testing.T) {
	path := program(t, "content")
	base := build(t, spec(path)).Ref
	other := spec(program(t, "Content"))
	moved := spec(path)
	moved.Files = map[string]string{"/app": path}
	started := spec(path)
	started.Entrypoint = []string{"/app", "-v"}
	for name, s := range map[string]Spec{"content": other, "files": moved, "entrypoint": started} {
		if ref := build(t, s).Ref; ref == base || !strings.HasPrefix(ref, Prefix+"app:") {
			t.Errorf("after a change of %s: %s, before: %s", name, ref, base)
		}
	}
}

func TestImageIsNotForRoot(t *testing.T) {
	file, err := build(t, spec(program(t, "x"))).image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if file.Config.User != "65532:65532" || file.OS != "linux" {
		t.Errorf("user %q on %q", file.Config.User, file.OS)
	}
	if diff := cmp.Diff([]string{"/app"}, file.Config.Entrypoint); diff != "" {
		t.Errorf("entrypoint (-want +got):\n%s", diff)
	}
}

func TestArchiveReadsBackUnderItsReference(t *testing.T) {
	img := build(t, spec(program(t, "x")))
	path := filepath.Join(t.TempDir(), "app.tar")
	if err := img.Write(path); err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewTag(img.Ref)
	if err != nil {
		t.Fatal(err)
	}
	back, err := tarball.ImageFromPath(path, &ref)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := img.image.ConfigName()
	got, err := back.ConfigName()
	if err != nil || got != want {
		t.Errorf("config %v, %v; want %v", got, err, want)
	}
}

func TestFoldersListParentsFirst(t *testing.T) {
	got := folders(map[string]string{"/usr/local/bin/x": "", "/x": ""})
	want := []string{"dev", "etc", "proc", "sys", "tmp", "usr", "usr/local", "usr/local/bin"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLibrariesOfADynamicProgram(t *testing.T) {
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Skip("no /bin/sh here")
	}
	files, err := Libraries(shell)
	if err != nil {
		t.Fatal(err)
	}
	loader, libc := false, false
	for dest, source := range files {
		if _, err := os.Stat(source); err != nil {
			t.Errorf("%s comes from %s: %v", dest, source, err)
		}
		loader = loader || strings.Contains(dest, "ld-")
		libc = libc || strings.Contains(dest, "libc.")
	}
	if !loader || !libc {
		t.Errorf("files %v, want loader and libc among them", files)
	}
}
