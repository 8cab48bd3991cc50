package envoytest

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFindPrefersTheEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "envoy")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SKIPPER_ENVOY", file)
	if got := Find(t); got != file {
		t.Errorf("found %s, want %s", got, file)
	}
	t.Setenv("SKIPPER_ENVOY", file+"-missing")
	if path, err := find(); err == nil {
		t.Errorf("found %s, which is missing", path)
	}
}

func TestFindLooksInTheCache(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SKIPPER_ENVOY", "")
	t.Setenv("XDG_CACHE_HOME", dir)
	want := filepath.Join(dir, "skipper", "bin", "envoy")
	if path, err := find(); err == nil || path != want {
		t.Errorf("looked at %q, error %v, want %q", path, err, want)
	}
}

func TestFreePortsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[uint16]bool{}
	for _, p := range FreePorts(t, 20) {
		if p == 0 || seen[p] {
			t.Errorf("port %d is there twice", p)
		}
		seen[p] = true
	}
}
