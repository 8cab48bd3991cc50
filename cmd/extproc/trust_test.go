package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"skipper/proto/identity"
	"skipper/proto/identity/issue"
)

// certificate writes the files of a role.
func certificate(t *testing.T, a *issue.Authority, role identity.Role) identity.Files {
	t.Helper()
	pair, err := a.Issue(issue.Request{Role: role, Names: []string{"localhost"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := identity.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")}
	for name, text := range map[string][]byte{f.Cert: pair.Cert, f.Key: pair.Key, f.CA: a.Cert} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// newTrustedPlane is a controller with a certificate of the authority, and one pod.
func newTrustedPlane(t *testing.T) (*issue.Authority, *plane) {
	t.Helper()
	a, err := issue.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	id, err := identity.Open(identity.Options{Files: certificate(t, a, identity.Controller), Role: identity.Controller})
	if err != nil {
		t.Fatal(err)
	}
	return a, newSecurePlane(t, id.Server(nil), "10.0.0.1:80")
}

func TestSidecarSpeaksTLS(t *testing.T) {
	a, p := newTrustedPlane(t)
	s := startSidecar(t, p, func(c *config) { c.plaintext, c.tls = false, certificate(t, a, identity.Extproc) })
	stream := ask(t, s.dial(t), function("t"))
	if got := answered(t, stream); got != "10.0.0.1:80" {
		t.Errorf("request went to %s", got)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
}

func TestCertificateOfAnotherRoleIsRefused(t *testing.T) {
	a, err := issue.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cfg := defaults()
	cfg.tls = certificate(t, a, identity.Envoy)
	if _, err := build(cfg, zap.NewNop()); err == nil || !strings.Contains(err.Error(), "role") {
		t.Errorf("error is %v", err)
	}
}
