package token_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skipper/function/token"
)

func pemOf(t testing.TB, kind string, key any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func TestParsePublicKeys(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	one, two := public(key(1)), public(key(2))
	first, second := pemOf(t, "PUBLIC KEY", one), pemOf(t, "PUBLIC KEY", two)
	rows := []struct {
		name string
		data string
		want []ed25519.PublicKey
	}{
		{"one", first, []ed25519.PublicKey{one}},
		{"two, in order, with space around", "\n" + first + "\n\n" + second + "\n", []ed25519.PublicKey{one, two}},
		{"empty", "", nil},
		{"only space", " \n", nil},
		{"no PEM", "ssh-ed25519 AAAA", nil},
		{"rest behind the key", first + "garbage", nil},
		{"private key type", pemOf(t, "PRIVATE KEY", one), nil},
		{"broken body", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte{1}})), nil},
		{"another algorithm", first + pemOf(t, "PUBLIC KEY", ec.Public()), nil},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, err := token.ParsePublicKeys([]byte(row.data))
			if (err == nil) != (row.want != nil) {
				t.Errorf("error %v, want keys %d", err, len(row.want))
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParsePublicKeys(f *testing.F) {
	first := pemOf(f, "PUBLIC KEY", public(key(1)))
	for _, seed := range []string{first, first + first, "", "-----BEGIN PUBLIC KEY-----", first[:30], "x" + first} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := token.ParsePublicKeys(data)
		if (err == nil) == (len(keys) == 0) {
			t.Errorf("%d keys with error %v", len(keys), err)
		}
	})
}
