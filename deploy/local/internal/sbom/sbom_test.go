package sbom

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestList(t *testing.T) {
	got := list(&debug.BuildInfo{
		GoVersion: "go1.26.1", Path: "skipper/cmd/echo", Main: debug.Module{Path: "skipper", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "github.com/BurntSushi/toml", Version: "v1.2.0+incompatible", Sum: "h1:abc="},
			{Path: "old", Version: "v1.0.0", Replace: &debug.Module{Path: "new", Version: "v2.0.0"}},
		},
	})
	want := []component{
		{"pkg:golang/std@1.26.1", "library", "std", "1.26.1", "pkg:golang/std@1.26.1", nil},
		{
			"pkg:golang/github.com/burntsushi/toml@v1.2.0%2Bincompatible", "library", "github.com/BurntSushi/toml", "v1.2.0+incompatible",
			"pkg:golang/github.com/burntsushi/toml@v1.2.0%2Bincompatible",
			[]property{{"go:sum", "h1:abc="}},
		},
		{"pkg:golang/new@v2.0.0", "library", "new", "v2.0.0", "pkg:golang/new@v2.0.0", nil},
	}
	if d := cmp.Diff(want, got.Components); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if c := got.Metadata.Component; c.Name != "echo" || c.Type != "application" {
		t.Errorf("program %+v", c)
	}
}

// This test is a Go program itself, of which the compiler does not record the modules.
func TestOfThisProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := Of(self)
	if err != nil {
		t.Fatal(err)
	}
	var b bom
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	if b.Format != "CycloneDX" || b.Components[0].Version != strings.TrimPrefix(runtime.Version(), "go") || b.Metadata.Component.Name != "sbom.test" {
		t.Errorf("list is\n%s", text)
	}
}

func TestOfNoProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte("no program"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Of(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v", err)
	}
}
