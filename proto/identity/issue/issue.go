// Package issue makes Skipper's authority and the certificates that it signs,
// one per role: for installations without a certificate manager, and for tests.
// It keeps nothing; the caller owns the keys. All are on the P-256 curve.
package issue

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"time"

	"skipper/proto/identity"
)

// Lifetimes. A certificate outlives two renewals that are forgotten a month
// before its end; the authority outlives the installation.
const (
	AuthorityLifetime   = 10 * 365 * 24 * time.Hour
	CertificateLifetime = 365 * 24 * time.Hour
)

// early is how long before now a certificate is valid: clocks of readers may be behind.
const early = time.Hour

// Pair is a certificate and its key (PKCS #8), both in PEM.
type Pair struct{ Cert, Key []byte }

// Authority signs certificates. It is safe for concurrent use.
type Authority struct {
	Pair
	signer tls.Certificate
}

// NewAuthority makes a self-signed authority.
func NewAuthority(now time.Time) (*Authority, error) {
	template, err := newTemplate("Skipper authority", now, AuthorityLifetime)
	if err != nil {
		return nil, err
	}
	template.IsCA, template.MaxPathLenZero = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	pair, err := sign(template, nil)
	if err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	return ParseAuthority(pair)
}

// ParseAuthority reads an authority that NewAuthority made.
func ParseAuthority(p Pair) (*Authority, error) {
	signer, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	if !signer.Leaf.IsCA {
		return nil, fmt.Errorf("read authority: certificate of %s is none", signer.Leaf.Subject)
	}
	return &Authority{p, signer}, nil
}

// Request says what a certificate is for.
type Request struct {
	Role identity.Role
	// Names are those by which a server is dialled; none makes a client's only.
	Names []string
	// Lifetime from now; 0 is CertificateLifetime.
	Lifetime time.Duration
}

// Issue makes a key and signs a certificate for it.
func (a *Authority) Issue(r Request, now time.Time) (Pair, error) {
	lifetime := r.Lifetime
	if lifetime == 0 {
		lifetime = CertificateLifetime
	}
	template, err := newTemplate("Skipper "+string(r.Role), now, lifetime)
	if err != nil {
		return Pair{}, err
	}
	uri, err := url.Parse(r.Role.URI())
	if err != nil {
		return Pair{}, fmt.Errorf("make certificate for role %q: %w", r.Role, err)
	}
	template.URIs, template.DNSNames = []*url.URL{uri}, r.Names
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(r.Names) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	pair, err := sign(template, &a.signer)
	if err != nil {
		return Pair{}, fmt.Errorf("make certificate for role %s: %w", r.Role, err)
	}
	return pair, nil
}

// ServiceNames are the names of a Service, headless or not, and of its pods.
func ServiceNames(name, namespace string) []string {
	local := name + "." + namespace + ".svc.cluster.local"
	return []string{name, name + "." + namespace, name + "." + namespace + ".svc", local, "*." + local}
}

func newTemplate(name string, now time.Time, lifetime time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-early),
		NotAfter:              now.Add(lifetime),
		BasicConstraintsValid: true,
	}, nil
}

// sign makes a key and its certificate; a nil signer makes it sign itself.
func sign(template *x509.Certificate, signer *tls.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make key: %w", err)
	}
	parent, by := template, any(key)
	if signer != nil {
		parent, by = signer.Leaf, signer.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		return Pair{}, fmt.Errorf("sign: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode key: %w", err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}
