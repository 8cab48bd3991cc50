package keys

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
)

// Generate makes a private key: Ed25519, PKCS#8, PEM.
func Generate() ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode signing key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// Parse reads a private key: Ed25519, PKCS#8, PEM. Errors hold no key.
func Parse(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("read signing key: it is no PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("read signing key: it is no PKCS#8 key")
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("read signing key: it is not Ed25519")
	}
	return key, nil
}

// PublicOf reads a private key and returns its public half. Errors hold no key.
func PublicOf(text []byte) (ed25519.PublicKey, error) {
	key, err := Parse(text)
	if err != nil {
		return nil, err
	}
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("read signing key: it has no public half")
	}
	return public, nil
}

// Encode writes public keys one after the other: PKIX, PEM.
func Encode(all []ed25519.PublicKey) ([]byte, error) {
	var out []byte
	for _, k := range all {
		der, err := x509.MarshalPKIXPublicKey(k)
		if err != nil {
			return nil, fmt.Errorf("encode public key: %w", err)
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)
	}
	return out, nil
}

// Fingerprint tells keys apart for people: the first bytes of the SHA-256 of
// the public key; "" for none.
func Fingerprint(k ed25519.PublicKey) string {
	if k == nil {
		return ""
	}
	sum := sha256.Sum256(k)
	return hex.EncodeToString(sum[:8])
}
