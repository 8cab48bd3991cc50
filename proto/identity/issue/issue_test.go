package issue_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"skipper/proto/identity"
	"skipper/proto/identity/issue"
)

func TestCertificateOfARole(t *testing.T) {
	now := time.Now()
	a, err := issue.NewAuthority(now)
	if err != nil {
		t.Fatal(err)
	}
	names := issue.ServiceNames("skipper-controller", "skipper-system")
	pair, err := a.Issue(issue.Request{Role: identity.Controller, Names: names}, now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := identity.RoleOf(c.Leaf); err != nil || r != identity.Controller {
		t.Errorf("role %q, %v", r, err)
	}
	if d := cmp.Diff(names, c.Leaf.DNSNames); d != "" {
		t.Error(d)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Cert)
	for _, host := range []string{"skipper-controller", "skipper-controller.skipper-system.svc.cluster.local", "10-0-0-1.skipper-controller.skipper-system.svc.cluster.local"} {
		if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if life := c.Leaf.NotAfter.Sub(now).Round(time.Hour); life != issue.CertificateLifetime {
		t.Errorf("lives %v", life)
	}
}

func TestAuthorityComesBackFromItsFiles(t *testing.T) {
	a, err := issue.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := issue.ParseAuthority(a.Pair); err != nil {
		t.Error(err)
	}
	leaf, err := a.Issue(issue.Request{Role: identity.Operator}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := issue.ParseAuthority(leaf); err == nil {
		t.Error("a role's certificate passes for an authority")
	}
	if _, err := issue.ParseAuthority(issue.Pair{Cert: a.Cert, Key: leaf.Key}); err == nil {
		t.Error("a key of another certificate passes")
	}
}
