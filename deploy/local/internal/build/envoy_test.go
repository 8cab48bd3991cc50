package build

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ours is a builder of the project that this file is part of.
func ours() Builder { return Builder{Root: filepath.Join("..", "..", "..", "..")} }

func TestEachPinnedEnvoyIsKeptByItself(t *testing.T) {
	deployed, err := ours().wheel("")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	keys := map[string]bool{}
	for _, version := range []string{deployed.version, "1.39.3", "1.38.3"} {
		w, err := ours().wheel(version)
		if err != nil {
			t.Fatal(err)
		}
		a, err := w.artefact()
		if err != nil {
			t.Fatal(err)
		}
		got[version], keys[a.Key] = a.Name, true
	}
	want := map[string]string{deployed.version: "envoy", "1.39.3": "envoy-1.39.3", "1.38.3": "envoy-1.38.3"}
	if diff := cmp.Diff(want, got); diff != "" || len(keys) != len(want) {
		t.Errorf("%d keys, names (-want +got):\n%s", len(keys), diff)
	}
}

func TestEveryEnvoyIsPinnedByTheHashesOfBothMachines(t *testing.T) {
	files, err := filepath.Glob("../../parts/envoy/requirements*.txt")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %v, %v", files, err)
	}
	hash := regexp.MustCompile(`--hash=sha256:[0-9a-f]{64}\b`)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(hash.FindAll(content, -1)); n != 2 {
			t.Errorf("%s has %d hashes, want one for x86-64 and one for ARM64", file, n)
		}
		w, err := readWheel(file)
		if err != nil || w.name != "envoy" && w.name != "envoy-"+w.version {
			t.Errorf("%s is %+v, %v", file, w, err)
		}
	}
}

func TestUnknownEnvoyIsRefusedWithThoseThatAre(t *testing.T) {
	_, err := ours().wheel("0.1.2")
	if err == nil || !strings.Contains(err.Error(), "1.39.3") {
		t.Errorf("error is %v", err)
	}
}
