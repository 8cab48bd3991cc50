package assign

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"time"

	"aidanwoods.dev/go-paseto"

	"skipper/controller/pool"
)

// A token is valid from backdate before it is issued, for pods whose clock is
// behind, until lifetime after (contract section 2).
const (
	lifetime = 7 * 24 * time.Hour
	backdate = 60 * time.Second
)

// ParseKey reads an Ed25519 private key: PKCS#8, PEM.
func ParseKey(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("private key is no PEM: make one with openssl genpkey -algorithm ed25519")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read PKCS#8 private key from PEM block %q: %w", block.Type, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("private key is a %T, want Ed25519: make one with openssl genpkey -algorithm ed25519", parsed)
	}
	return key, nil
}

// LoadKey is ParseKey of a file's content.
func LoadKey(path string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read private key: %w", err)
	}
	key, err := ParseKey(text)
	if err != nil {
		return nil, fmt.Errorf("file %s: %w", path, err)
	}
	return key, nil
}

// Minter makes assignment tokens: PASETO v2.public over the claims sub, iat,
// nbf, exp, pod, uid and fnh, all strings, times in RFC 3339. Safe for
// concurrent use.
type Minter struct {
	key paseto.V2AsymmetricSecretKey
}

// NewMinter returns a Minter that signs with key.
func NewMinter(key ed25519.PrivateKey) (*Minter, error) {
	secret, err := paseto.NewV2AsymmetricSecretKeyFromEd25519(key)
	if err != nil {
		return nil, fmt.Errorf("read signing key: %w", err)
	}
	return &Minter{secret}, nil
}

// Mint returns the token for pod p, issued at now. Function is the exact text
// of the X-Skipper-Function header that goes with it; the token holds only its
// SHA-256, because a token may be shown to callers.
func (m *Minter) Mint(p pool.Pod, tenant string, function []byte, now time.Time) string {
	sum := sha256.Sum256(function)
	iat := now.UTC().Truncate(time.Second)
	t := paseto.NewToken()
	t.SetString("sub", tenant)
	t.SetString("pod", p.Name)
	t.SetString("uid", p.UID)
	t.SetString("fnh", base64.RawURLEncoding.EncodeToString(sum[:]))
	t.SetTime("iat", iat)
	t.SetTime("nbf", iat.Add(-backdate))
	t.SetTime("exp", iat.Add(lifetime))
	return t.V2Sign(m.key)
}
