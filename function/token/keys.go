package token

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// ParsePublicKeys reads the Ed25519 public keys (PKIX, PEM type "PUBLIC KEY") of one file. Several keys in a row
// are what a rotation looks like: each of them is accepted. A file without a key, with another kind of key, or
// with something else behind the last block is refused as a whole.
func ParsePublicKeys(data []byte) ([]ed25519.PublicKey, error) {
	var keys []ed25519.PublicKey
	for rest := bytes.TrimSpace(data); len(rest) > 0; {
		block, after := pem.Decode(rest)
		if block == nil {
			return nil, fmt.Errorf("no PEM block in the %d bytes after key %d", len(rest), len(keys))
		}
		key, err := publicKey(block)
		if err != nil {
			return nil, fmt.Errorf("read key %d: %w", len(keys)+1, err)
		}
		keys = append(keys, key)
		rest = bytes.TrimSpace(after)
	}
	if len(keys) == 0 {
		return nil, errors.New("no public key in the file")
	}
	return keys, nil
}

func publicKey(block *pem.Block) (ed25519.PublicKey, error) {
	if block.Type != "PUBLIC KEY" {
		return nil, fmt.Errorf("PEM block is a %q, want a \"PUBLIC KEY\"", block.Type)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse PKIX: %w", err)
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("key is a %T, want Ed25519", parsed)
	}
	return key, nil
}
