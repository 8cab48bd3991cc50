package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skipper/proto/fn"
	"skipper/proto/signed"
)

// privateKeyFile writes a signer's key, as openssl does.
func privateKeyFile(t *testing.T, n byte) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(signer(n))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "signer.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// claimsOf verifies a token by the signer's public half, as a gateway does.
func claimsOf(t *testing.T, n byte, token string) signed.Claims {
	t.Helper()
	c, err := signed.Verify([]ed25519.PublicKey{signer(n).Public().(ed25519.PublicKey)}, token)
	if err != nil {
		t.Fatalf("verify %q: %v", token, err)
	}
	return c
}

func TestSign(t *testing.T) {
	t.Parallel()
	g, file := newStage(t), privateKeyFile(t, 1)
	for _, row := range []struct {
		args     string
		function string
		audience string
		lifetime time.Duration
	}{
		{"prod/echo/acme", `{"namespace":"prod","deployment":"echo","tenant":"acme","scale":{"max_instances":1}}`, "skipper", 5 * time.Minute},
		{"prod/echo/acme --metadata v2 --max-instances 3 --audience edge --token-lifetime 1h", `{"namespace":"prod","deployment":"echo","tenant":"acme","metadata":"v2","scale":{"max_instances":3}}`, "edge", time.Hour},
		{"prod/echo/acme/oneshot", `{"namespace":"prod","deployment":"echo","tenant":"acme","scale":{"max_instances":1},"oneshot":true}`, "skipper", 5 * time.Minute},
	} {
		out, err := g.run(t, append([]string{"token", "sign", "--key-file", file}, strings.Fields(row.args)...)...)
		if err != nil {
			t.Errorf("%s: %v", row.args, err)
			continue
		}
		c := claimsOf(t, 1, strings.TrimSuffix(out, "\n"))
		want, err := fn.Parse([]byte(row.function))
		if err != nil {
			t.Fatal(err)
		}
		if c.Function != string(fn.Marshal(want)) || c.Audience != row.audience || !c.Expires.Equal(clock.Add(row.lifetime)) || !c.NotBefore.Equal(clock.Add(-signed.Backdate)) {
			t.Errorf("%s: %+v", row.args, c)
		}
	}
}

func TestSignRefusesWhatNoGatewayWouldTake(t *testing.T) {
	t.Parallel()
	g, file := newStage(t), privateKeyFile(t, 1)
	for _, args := range []string{
		"prod/echo/acme", "prod/echo --key-file " + file, "prod/echo/acme --key-file /does/not/exist", "prod/echo/acme --key-file " + keyFile(t, 1),
		"prod/echo/acme --token-lifetime 0s --key-file " + file, "prod/echo/acme --min-instances 9 --key-file " + file, "prod/echo/acme --audience= --key-file " + file,
	} {
		if out, err := g.run(t, append([]string{"token", "sign"}, strings.Fields(args)...)...); err == nil || strings.Contains(out, signed.Prefix) {
			t.Errorf("%s: printed %q, %v", args, out, err)
		}
	}
}

func TestInvokeSigns(t *testing.T) {
	t.Parallel()
	var sent string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { sent = r.Header.Get("X-Skipper-Function") }))
	defer server.Close()
	g, file := newStage(t), privateKeyFile(t, 1)
	if _, err := g.run(t, "invoke", "prod/echo/acme", "--gateway", server.URL, "--signing-key-file", file, "--audience", "edge"); err != nil {
		t.Fatal(err)
	}
	if c := claimsOf(t, 1, sent); c.Audience != "edge" || !strings.Contains(c.Function, `"tenant":"acme"`) {
		t.Errorf("sent %+v", c)
	}
}
