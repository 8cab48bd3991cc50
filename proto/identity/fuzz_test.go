package identity

import (
	"crypto/x509"
	"net/url"
	"testing"
)

// FuzzRoots: what an operator puts into the bundle gives an error or a pool,
// and never a panic.
func FuzzRoots(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"))
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n"))
	f.Add([]byte("nonsense"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if roots, err := parseRoots(text); (roots == nil) == (err == nil) {
			t.Errorf("pool %v, error %v", roots, err)
		}
	})
}

// FuzzRole: a role comes out only of its own URI, written in exactly one way.
func FuzzRole(f *testing.F) {
	for _, s := range []string{"skipper://envoy", "skipper://envoy/", "SKIPPER://envoy", "skipper://envoy?x", "skipper:envoy", "https://envoy"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := url.Parse(s)
		if err != nil {
			return
		}
		if r, err := RoleOf(&x509.Certificate{URIs: []*url.URL{u}}); err == nil && u.String() != r.URI() {
			t.Errorf("%q is taken for %s", s, r)
		}
		twice := &x509.Certificate{URIs: []*url.URL{{Scheme: "skipper", Host: "envoy"}, u}}
		if r, err := RoleOf(twice); err == nil && (u.Scheme == "skipper" || r != Envoy) {
			t.Errorf("%q beside a role is taken for %s", s, r)
		}
	})
}
