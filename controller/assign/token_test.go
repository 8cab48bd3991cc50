package assign

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"aidanwoods.dev/go-paseto"
	"github.com/google/go-cmp/cmp"

	"skipper/controller/pool"
)

// newKey is a fixed key, so that a failure can be seen again.
func newKey() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
}

func pemOf(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func TestMintMakesTheContractsClaims(t *testing.T) {
	m, err := NewMinter(newKey())
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(`{"namespace":"prod"}`)
	now := time.Date(2026, 3, 1, 13, 0, 0, 999, time.FixedZone("CET", 3600))
	token := m.Mint(pool.Pod{Name: "echo-1", UID: "u1"}, "t1", text, now)
	public, err := paseto.NewV2AsymmetricPublicKeyFromEd25519(newKey().Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := paseto.MakeParser(nil).ParseV2Public(public, token)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	want := map[string]any{
		"sub": "t1", "pod": "echo-1", "uid": "u1", "fnh": base64.RawURLEncoding.EncodeToString(sum[:]),
		"iat": "2026-03-01T12:00:00Z", "nbf": "2026-03-01T11:59:00Z", "exp": "2026-03-08T12:00:00Z",
	}
	if diff := cmp.Diff(want, parsed.Claims()); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
}

func TestLoadKey(t *testing.T) {
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		text []byte
		ok   bool
	}{
		{"Ed25519", pemOf(t, newKey()), true},
		{"another kind", pemOf(t, other), false},
		{"no PEM", []byte("secret"), false},
		{"no PKCS#8", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}), false},
		{"empty", nil, false},
	}
	for _, tt := range tests {
		path := filepath.Join(t.TempDir(), "key.pem")
		if err := os.WriteFile(path, tt.text, 0o600); err != nil {
			t.Fatal(err)
		}
		key, err := LoadKey(path)
		if (err == nil) != tt.ok || tt.ok && !key.Equal(newKey()) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err != nil && bytes.Contains([]byte(err.Error()), []byte("secret")) {
			t.Errorf("%s: the error shows the key: %v", tt.name, err)
		}
	}
	if _, err := LoadKey(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no error for a missing file")
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH\n-----END PRIVATE KEY-----\n"))
	f.Add([]byte("-----BEGIN X-----\n-----END X-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if key, err := ParseKey(text); err == nil {
			if _, err := NewMinter(key); err != nil {
				t.Errorf("key that was read cannot sign: %v", err)
			}
		}
	})
}
