package house_test

import (
	"path"
	"strings"
	"testing"
)

// mayImport is the import column of the architecture: the packages of ours that
// a top-level folder may use besides its own. "x/..." allows the whole folder.
// Tests may also use what is under test/ and the harness of the real Envoy.
var mayImport = map[string][]string{
	"proto":      {},
	"function":   {},
	"xds":        {"proto/..."},
	"controller": {"proto/...", "xds/..."},
	"extproc":    {"proto/...", "xds", "xds/client"},
	"envoy":      {"proto/..."},
	"cmd":        {"proto/...", "function/...", "xds/...", "controller/...", "extproc/...", "envoy/..."},
	"test":       {"proto/...", "function/...", "xds/...", "controller/...", "extproc/...", "envoy/..."},
}

// inTests is what a folder's tests may use besides, each for a stated reason.
var inTests = map[string][]string{
	"extproc":    {"xds/server", "xds/resource"}, // the client half is tested against the real server half
	"envoy":      {"xds/..."},                    // the real Envoy is fed by the real control plane
	"controller": {"envoy/envoytest"},            // load reports are tested with the Envoy that makes them
}

func TestImportsFollowTheRooms(t *testing.T) {
	files := goFiles(t)
	if len(files) < 20 {
		t.Fatalf("only %d Go files found: the walk is broken", len(files))
	}
	for _, f := range files {
		room, _, _ := strings.Cut(f.path, "/")
		allowed, known := mayImport[room]
		if room == "cmd" { // each command is a room of its own
			room = path.Join(room, strings.Split(f.path, "/")[1])
		}
		if !known {
			t.Errorf("%s lies in no known room: add the folder to the architecture first", f.path)
			continue
		}
		if f.test {
			allowed = append(append([]string{"test/..."}, allowed...), inTests[room]...)
		}
		for _, imp := range f.ownImports() {
			if !permitted(room, imp, allowed) {
				t.Errorf("%s imports skipper/%s: %s may use only %v", f.path, imp, room, allowed)
			}
		}
	}
}

func permitted(room, imp string, allowed []string) bool {
	if imp == room || strings.HasPrefix(imp, room+"/") {
		return true
	}
	for _, a := range allowed {
		if folder, all := strings.CutSuffix(a, "/..."); imp == a || all && (imp == folder || strings.HasPrefix(imp, folder+"/")) {
			return true
		}
	}
	return false
}

// The rules themselves are checked on made-up imports, so that a hole in the
// matching does not pass unnoticed.
func TestPermittedTellsRoomsApart(t *testing.T) {
	for _, row := range []struct {
		room, imp string
		want      bool
	}{
		{"extproc", "extproc/wire", true},
		{"extproc", "xds/client", true},
		{"extproc", "xds/server", false},
		{"extproc", "controller/pool", false},
		{"controller", "xds/server", true},
		{"controller", "extproc", false},
		{"proto", "xds", false},
		{"proto", "proto/fn", true},
		{"function", "proto", false},
		{"cmd/extproc", "cmd/echo", false},
		{"cmd/echo", "cmd/echo/internal/x", true},
		{"test", "cmd/echo", false},
		{"xds", "protocol", false},
	} {
		folder, _, _ := strings.Cut(row.room, "/")
		if got := permitted(row.room, row.imp, mayImport[folder]); got != row.want {
			t.Errorf("%s -> %s: %v, want %v", row.room, row.imp, got, row.want)
		}
	}
}

func TestNoCatchAllPackages(t *testing.T) {
	for _, f := range goFiles(t) {
		switch base := path.Base(path.Dir(f.path)); base {
		case "util", "utils", "common", "helpers", "types", "misc":
			t.Errorf("%s: package %s says nothing: name it after what it provides", f.path, base)
		}
	}
}
