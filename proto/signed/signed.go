// Package signed is the signed form of the X-Skipper-Function header: a token
// that says for which function, at which gateways and until when whoever holds
// it may send requests. Who owns a tenant signs it; extproc verifies it.
//
// A token is PASETO v2.public (Ed25519, text prefix "v2.public.") without a
// footer, over a JSON object of which these members, all strings, are read:
//
//	function  the JSON of the function, as it would stand in the header
//	aud       the gateways that it is meant for
//	nbf, exp  from when and until when it holds, RFC 3339
//
// A token is no secret of one request: until exp, whoever has it may send it
// again and again. All is pure and safe for concurrent use.
package signed

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"aidanwoods.dev/go-paseto"
)

const (
	// Prefix begins every token; no JSON object begins so.
	Prefix = "v2.public."
	// MaxLength is the longest token that is read, in bytes: room for a function
	// of 8 KiB, with its quotes escaped, in base64.
	MaxLength = 24 << 10
	// Backdate is how long before its issue a token should begin to hold, for
	// gateways whose clock is behind.
	Backdate = time.Minute
	// DefaultAudience is what gateways expect in aud unless told otherwise.
	DefaultAudience = "skipper"
)

// Names of the members.
const (
	memberFunction  = "function"
	memberAudience  = "aud"
	memberNotBefore = "nbf"
	memberExpires   = "exp"
)

// Claims is what a token says. Times have whole seconds.
type Claims struct {
	// Function is the JSON of the function; Verify does not look inside.
	Function           string
	Audience           string
	NotBefore, Expires time.Time
}

// ErrExpired is returned by Check for a token whose time is over.
var ErrExpired = errors.New("token has expired")

// Is tells a token from the JSON of a function.
func Is(header []byte) bool { return bytes.HasPrefix(header, []byte(Prefix)) }

// Sign makes the token. The error tells of a key of the wrong size, or of
// claims that Verify or Check would always refuse.
func Sign(key ed25519.PrivateKey, c Claims) (string, error) {
	secret, err := paseto.NewV2AsymmetricSecretKeyFromBytes(key)
	if err != nil {
		return "", fmt.Errorf("read signing key: %w", err)
	}
	if c.Function == "" || c.Audience == "" || !c.NotBefore.Before(c.Expires) {
		return "", errors.New("sign function: function and audience must be set, and the token must begin to hold before it ends")
	}
	t := paseto.NewToken()
	t.SetString(memberFunction, c.Function)
	t.SetString(memberAudience, c.Audience)
	t.SetTime(memberNotBefore, c.NotBefore.UTC())
	t.SetTime(memberExpires, c.Expires.UTC())
	text := t.V2Sign(secret)
	if len(text) > MaxLength {
		return "", fmt.Errorf("sign function: token has %d bytes, at most %d are read: shorten metadata", len(text), MaxLength)
	}
	return text, nil
}

// Verify returns the claims of a token that one of the keys has signed. It does
// not judge them: see Check. Errors are meant for the caller.
func Verify(keys []ed25519.PublicKey, text string) (Claims, error) {
	if len(text) > MaxLength {
		return Claims{}, fmt.Errorf("token has %d bytes, at most %d are read", len(text), MaxLength)
	}
	if rest, ok := strings.CutPrefix(text, Prefix); !ok || strings.Contains(rest, ".") {
		return Claims{}, errors.New("token is no PASETO v2.public without a footer")
	}
	parser := paseto.MakeParser(nil)
	for _, raw := range keys {
		key, err := paseto.NewV2AsymmetricPublicKeyFromEd25519(raw)
		if err != nil {
			return Claims{}, fmt.Errorf("read public key: %w", err)
		}
		if t, err := parser.ParseV2Public(key, text); err == nil {
			return read(t)
		}
	}
	return Claims{}, fmt.Errorf("token is signed by none of the %d keys that are trusted here, or was changed since", len(keys))
}

func read(t *paseto.Token) (Claims, error) {
	var c Claims
	for name, into := range map[string]*string{memberFunction: &c.Function, memberAudience: &c.Audience} {
		value, err := t.GetString(name)
		if err != nil || value == "" {
			return Claims{}, fmt.Errorf("member %q of the token is not a non-empty string", name)
		}
		*into = value
	}
	for name, into := range map[string]*time.Time{memberNotBefore: &c.NotBefore, memberExpires: &c.Expires} {
		value, err := t.GetTime(name)
		if err != nil {
			return Claims{}, fmt.Errorf("member %q of the token is not a time in RFC 3339", name)
		}
		*into = value.UTC()
	}
	return c, nil
}

// Check says why the token does not hold at now for the audience; nil: it does.
func (c Claims) Check(audience string, now time.Time) error {
	switch {
	case c.Audience != audience:
		return fmt.Errorf("token is meant for %.80q, this gateway is %q", c.Audience, audience)
	case now.Before(c.NotBefore):
		return fmt.Errorf("token holds from %s on, the gateway's clock says %s", stamp(c.NotBefore), stamp(now))
	case !now.Before(c.Expires):
		return fmt.Errorf("%w at %s, the gateway's clock says %s", ErrExpired, stamp(c.Expires), stamp(now))
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// ParsePublicKeys reads the Ed25519 public keys (PKIX, PEM type "PUBLIC KEY") of
// a file: several while one replaces another. It takes all of the file or none.
func ParsePublicKeys(data []byte) ([]ed25519.PublicKey, error) {
	var keys []ed25519.PublicKey
	for rest := bytes.TrimSpace(data); len(rest) > 0; {
		block, after := pem.Decode(rest)
		if block == nil || block.Type != "PUBLIC KEY" {
			return nil, fmt.Errorf("what follows key %d is no PEM block of type PUBLIC KEY", len(keys))
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read public key %d: %w", len(keys)+1, err)
		}
		key, ok := parsed.(ed25519.PublicKey)
		if !ok {
			return nil, fmt.Errorf("public key %d is a %T, want Ed25519", len(keys)+1, parsed)
		}
		keys = append(keys, key)
		rest = bytes.TrimSpace(after)
	}
	if len(keys) == 0 {
		return nil, errors.New("found no public key")
	}
	return keys, nil
}
