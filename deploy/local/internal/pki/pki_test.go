package pki

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func authority(t *testing.T) (*Authority, *x509.CertPool) {
	t.Helper()
	ca, err := NewAuthority("ca", now())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca.Cert) {
		t.Fatal("authority's certificate is no PEM")
	}
	return ca, pool
}

func issue(t *testing.T, ca *Authority, r Request) *x509.Certificate {
	t.Helper()
	pair, err := ca.Issue(r, now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(pair.Cert, pair.Key); err != nil {
		t.Fatalf("certificate and key do not match: %v", err)
	}
	block, _ := pem.Decode(pair.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestServerCertificateVerifiesForItsHosts(t *testing.T) {
	ca, pool := authority(t)
	cert := issue(t, ca, Request{Name: "server", Hosts: []string{"10.244.0.1", "kubernetes.default", "fd00::1"}})
	for host, want := range map[string]bool{
		"10.244.0.1": true, "kubernetes.default": true, "fd00::1": true, "10.244.0.2": false, "kubernetes": false,
	} {
		_, err := cert.Verify(x509.VerifyOptions{Roots: pool, DNSName: host, CurrentTime: now()})
		if (err == nil) != want {
			t.Errorf("verify for %s: %v, want success %v", host, err, want)
		}
	}
	if diff := cmp.Diff([]string{"kubernetes.default"}, cert.DNSNames); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestClientCertificateIsOnlyAClients(t *testing.T) {
	ca, pool := authority(t)
	cert := issue(t, ca, Request{Name: "admin", Groups: []string{"system:masters"}})
	for usage, want := range map[x509.ExtKeyUsage]bool{x509.ExtKeyUsageClientAuth: true, x509.ExtKeyUsageServerAuth: false} {
		_, err := cert.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{usage}, CurrentTime: now()})
		if (err == nil) != want {
			t.Errorf("verify for usage %v: %v, want success %v", usage, err, want)
		}
	}
	if cert.Subject.CommonName != "admin" || !cmp.Equal(cert.Subject.Organization, []string{"system:masters"}) || cert.IsCA {
		t.Errorf("subject %v, authority %v", cert.Subject, cert.IsCA)
	}
}

func TestOtherAuthorityIsNotTrusted(t *testing.T) {
	ca, _ := authority(t)
	_, foreign := authority(t)
	cert := issue(t, ca, Request{Name: "admin"})
	_, err := cert.Verify(x509.VerifyOptions{Roots: foreign, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, CurrentTime: now()})
	if err == nil {
		t.Error("verified against another authority")
	}
}

func TestSignerHalvesMatch(t *testing.T) {
	pair, err := NewSigner()
	if err != nil {
		t.Fatal(err)
	}
	private, _ := pem.Decode(pair.Key)
	public, _ := pem.Decode(pair.Cert)
	key, err := x509.ParsePKCS8PrivateKey(private.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	half, err := x509.ParsePKIXPublicKey(public.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !key.(*ecdsa.PrivateKey).PublicKey.Equal(half) {
		t.Error("public key is not the private key's")
	}
}

func TestWrittenKeyIsForItsOwnerOnly(t *testing.T) {
	ca, _ := authority(t)
	dir := t.TempDir()
	if err := ca.Write(dir, "ca"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "ca.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file %v, %v; want mode 0600", info, err)
	}
}
