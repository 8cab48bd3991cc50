package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"skipper/envoy"
	"skipper/proto/identity"
)

func TestIssuedFilesCanBeUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := run(t, "tls", "issue", "--dir", dir); err != nil {
		t.Fatal(err)
	}
	for _, role := range identity.Roles() {
		i, err := identity.Open(identity.Options{Role: role, Files: filesOf(dir, role)})
		if err != nil {
			t.Errorf("%s: %v", role, err)
			continue
		}
		if left := time.Until(i.Expires()); left < 300*24*time.Hour {
			t.Errorf("%s: valid for %v", role, left)
		}
		if s, err := os.Stat(filesOf(dir, role).Key); err != nil || s.Mode().Perm() != 0o600 {
			t.Errorf("%s: key is %v, %v", role, s.Mode(), err)
		}
	}
}

func filesOf(dir string, role identity.Role) identity.Files {
	at := func(name string) string { return filepath.Join(dir, string(role), name) }
	return identity.Files{Cert: at("tls.crt"), Key: at("tls.key"), CA: at("ca.crt")}
}

func TestRenewalKeepsTheAuthority(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var ca, leaf [2]string
	for i := range 2 {
		if _, err := run(t, "tls", "issue", "--dir", dir, "--lifetime", "24h"); err != nil {
			t.Fatal(err)
		}
		ca[i], leaf[i] = read(t, dir, "ca.crt"), read(t, dir, "extproc", "tls.crt")
	}
	if ca[0] != ca[1] || leaf[0] == leaf[1] {
		t.Error("want the same authority and another certificate")
	}
	if err := os.Remove(filepath.Join(dir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, "tls", "issue", "--dir", dir); err == nil {
		t.Error("an authority without its key was replaced")
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestIssueNeedsAFolderAndTime(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--dir", t.TempDir(), "--lifetime", "0s"}} {
		if _, err := run(t, append([]string{"tls", "issue"}, args...)...); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}

func TestOutputDirHoldsAllThatEnvoyReads(t *testing.T) {
	t.Parallel()
	want, err := envoy.Secrets(envoy.Default())
	if err != nil {
		t.Fatal(err)
	}
	alone, err := run(t, "envoy", "bootstrap")
	if err != nil {
		t.Fatal(err)
	}
	want["bootstrap.yaml"] = []byte(alone)
	dir := t.TempDir()
	if out, err := run(t, "envoy", "bootstrap", "--output-dir", dir); err != nil || out != "" {
		t.Fatalf("printed %q, %v", out, err)
	}
	got := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got[e.Name()] = []byte(read(t, dir, e.Name()))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
