package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
)

// Files are paths of PEM files: a certificate with its chain, its key, and the
// authorities that are trusted (several while one replaces another).
type Files struct{ Cert, Key, CA string }

// Validate says which flags are to be set so that there are either all files or
// plaintext, and not both; it does not look at the files.
func (f Files) Validate(plaintext bool) error {
	given := f.Cert != "" || f.Key != "" || f.CA != ""
	switch {
	case plaintext && given:
		return errors.New("--insecure-plaintext is set beside --tls-cert-file, --tls-key-file or --tls-ca-file: set one or the other")
	case !plaintext && (f.Cert == "" || f.Key == "" || f.CA == ""):
		return errors.New("--insecure-plaintext is not set, nor are all of --tls-cert-file, --tls-key-file and --tls-ca-file: set the files")
	}
	return nil
}

// contents are the bytes of Files.
type contents struct{ cert, key, ca []byte }

func (c contents) equal(o contents) bool {
	return bytes.Equal(c.cert, o.cert) && bytes.Equal(c.key, o.key) && bytes.Equal(c.ca, o.ca)
}

func (f Files) read() (contents, error) {
	var c contents
	for _, file := range []struct {
		what, path string
		into       *[]byte
	}{{"certificate", f.Cert, &c.cert}, {"key", f.Key, &c.key}, {"authorities", f.CA, &c.ca}} {
		b, err := os.ReadFile(file.path)
		if err != nil {
			return contents{}, fmt.Errorf("read TLS %s: %w", file.what, err)
		}
		*file.into = b
	}
	return c, nil
}

// material is a usable set of files.
type material struct {
	role  Role
	cert  tls.Certificate // with Leaf
	roots *x509.CertPool
}

// parse never puts a key into an error.
func (c contents) parse() (*material, error) {
	pair, err := tls.X509KeyPair(c.cert, c.key)
	if err != nil {
		return nil, fmt.Errorf("use TLS certificate and key: %w", err)
	}
	role, err := RoleOf(pair.Leaf)
	if err != nil {
		return nil, fmt.Errorf("use TLS certificate: %w", err)
	}
	roots, err := parseRoots(c.ca)
	if err != nil {
		return nil, fmt.Errorf("use TLS authorities: %w", err)
	}
	return &material{role, pair, roots}, nil
}

// parseRoots takes all certificates or none: a bundle that is half good would
// refuse peers later, for no reason that anybody sees.
func parseRoots(text []byte) (*x509.CertPool, error) {
	roots, n := x509.NewCertPool(), 0
	for {
		var block *pem.Block
		block, text = pem.Decode(text)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("found %s, want certificates only", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse certificate %d: %w", n+1, err)
		}
		roots.AddCert(c)
		n++
	}
	if n == 0 {
		return nil, errors.New("found no certificate")
	}
	return roots, nil
}
