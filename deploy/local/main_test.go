package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skipper/deploy/local/internal/deploy"
)

// execute runs the command line as a person would, with a cache of its own.
func execute(t *testing.T, args ...string) error {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetOut(io.Discard)
	return cmd.ExecuteContext(t.Context())
}

func TestVerbsOfANodeThatIsNotUpSayWhatToDo(t *testing.T) {
	for _, verb := range []string{"status", "kubeconfig"} {
		if err := execute(t, verb); err == nil || !strings.Contains(err.Error(), "start it with up") {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

func TestExistingClusterWantsImages(t *testing.T) {
	root := project(t)
	overlay := t.TempDir()
	err := execute(t, "up", "--cluster", "existing", "--root", root, "--overlay", overlay)
	if !errors.Is(err, deploy.ErrNoImages) {
		t.Errorf("error %v, want ErrNoImages", err)
	}
}

func TestUnknownClusterIsRefused(t *testing.T) {
	if err := execute(t, "up", "--cluster", "other", "--root", project(t)); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("error %v", err)
	}
}

func TestUnknownVerbIsRefused(t *testing.T) {
	if err := execute(t, "fly"); err == nil {
		t.Error("no error")
	}
}

func project(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "go.mod"), []byte("module skipper\n\ngo 1.26\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestProjectIsFoundUpwards(t *testing.T) {
	root, err := filepath.EvalSymlinks(project(t))
	if err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(root, "deploy", "local")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	// A module of another name on the way is not the project.
	if err := os.WriteFile(filepath.Join(below, "go.mod"), []byte("module skipper/deploy/local\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(below)
	got, err := (&settings{}).projectRoot()
	if diff := cmp.Diff(root, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	t.Chdir(t.TempDir())
	if got, err := (&settings{}).projectRoot(); err == nil {
		t.Errorf("found %s outside of any project", got)
	}
}

func TestFirstRequest(t *testing.T) {
	line := firstRequest("10.244.0.1:30080", false)
	_, rest, _ := strings.Cut(line, "X-Skipper-Function: ")
	function, rest, _ := strings.Cut(rest, "'")
	if !json.Valid([]byte(function)) || rest != " http://10.244.0.1:30080/hello" {
		t.Errorf("line %q", line)
	}
	if got := firstRequest("a:1", true); !strings.HasPrefix(got, "curl --noproxy '*' -H ") {
		t.Errorf("behind a proxy: %q", got)
	}
}
