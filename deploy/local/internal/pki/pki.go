// Package pki makes the certificates and keys of a local cluster: two authorities (the cluster's
// and the aggregation layer's), one certificate per component, the key of service accounts. All
// keys are on the P-256 curve. It keeps no state; the caller owns the folder.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// lifetime outlives any local cluster; the state is made anew by every first start.
const lifetime = 10 * 365 * 24 * time.Hour

// Pair is a certificate and its key, both in PEM.
type Pair struct {
	Cert []byte
	Key  []byte
}

// Authority signs certificates. It is safe for concurrent use.
type Authority struct {
	Pair
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Request says what a certificate is for. Server certificates name their hosts (names or IP
// addresses); one without hosts is a client's. Groups become the organisations.
type Request struct {
	Name   string
	Groups []string
	Hosts  []string
}

// NewAuthority makes a self-signed authority, valid from an hour before now.
func NewAuthority(name string, now time.Time) (*Authority, error) {
	template, err := newTemplate(name, now)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	pair, err := sign(template, template, key, key)
	if err != nil {
		return nil, fmt.Errorf("sign authority %s: %w", name, err)
	}
	return &Authority{Pair: pair, cert: template, key: key}, nil
}

// Issue makes a key and a certificate for it.
func (a *Authority) Issue(r Request, now time.Time) (Pair, error) {
	template, err := newTemplate(r.Name, now)
	if err != nil {
		return Pair{}, err
	}
	template.Subject.Organization = r.Groups
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(r.Hosts) > 0 {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		template.IPAddresses, template.DNSNames = splitHosts(r.Hosts)
	}
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	pair, err := sign(template, a.cert, key, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign certificate of %s: %w", r.Name, err)
	}
	return pair, nil
}

func splitHosts(hosts []string) (ips []net.IP, names []string) {
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			ips = append(ips, ip)
		} else {
			names = append(names, h)
		}
	}
	return ips, names
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key, nil
}

func newTemplate(name string, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-time.Hour), // clocks of readers may be behind
		NotAfter:              now.Add(lifetime),
		BasicConstraintsValid: true,
	}, nil
}

func sign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (Pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return Pair{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: keyPEM}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// NewSigner makes a key that signs without a certificate: Cert is the public key in PEM.
func NewSigner() (Pair, error) {
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	private, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return Pair{}, fmt.Errorf("encode public key: %w", err)
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), Key: private}, nil
}

// Write stores the pair as NAME.crt and NAME.key in dir; the key is for its owner only.
func (p Pair) Write(dir, name string) error {
	if err := os.WriteFile(filepath.Join(dir, name+".crt"), p.Cert, 0o644); err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".key"), p.Key, 0o600); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	return nil
}
