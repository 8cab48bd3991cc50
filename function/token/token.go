// Package token is the assignment token: its format, how it is checked, and how it is made for tests and local
// tools. The controller mints the same format on its side; this comment is the agreement between the two.
//
// A token is PASETO v2.public (Ed25519, text prefix "v2.public.", no footer) over a JSON object whose members
// are all strings:
//
//	sub  the tenant
//	iat  when it was issued, RFC 3339
//	nbf  iat - 60 s, RFC 3339
//	exp  iat + 7 days, RFC 3339
//	pod  the pod's name
//	uid  the pod's UID
//	fnh  base64url without padding of SHA-256 over the exact bytes of the X-Skipper-Function header
//	     that travels with the token
//
// The function itself is not in the token, because a token may be shown to callers. pod and uid make it worthless
// at any other pod, fnh makes it worthless for any other function. Claims not named here are ignored.
//
// The package holds no state and starts no goroutine; everything in it is safe for concurrent use.
package token

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"aidanwoods.dev/go-paseto"
)

// Claim names, as they stand in the token's JSON.
const (
	ClaimTenant       = "sub"
	ClaimIssuedAt     = "iat"
	ClaimNotBefore    = "nbf"
	ClaimExpires      = "exp"
	ClaimPod          = "pod"
	ClaimUID          = "uid"
	ClaimFunctionHash = "fnh"
)

const (
	// Lifetime is the time from iat to exp.
	Lifetime = 7 * 24 * time.Hour
	// Backdate is the time from nbf to iat: room for a pod's clock that is behind.
	Backdate = 60 * time.Second
	// Leeway is how far clocks may be apart before a time claim counts as violated.
	Leeway = time.Minute
	// MaxLength bounds a token's text in bytes; a longer one is refused unread. A real one has about 500.
	MaxLength = 4096
)

// Claims is what a token says. Times have whole seconds.
type Claims struct {
	Tenant       string
	Pod          string
	UID          string
	FunctionHash string
	IssuedAt     time.Time
	NotBefore    time.Time
	Expires      time.Time
}

// Target is whom a token must be meant for.
type Target struct {
	Pod string
	// UID empty means that the pod does not know its UID yet and believes the token.
	UID string
	// Function is the X-Skipper-Function header, byte for byte.
	Function string
}

// NewClaims returns the claims the contract asks for in a token issued at now. function is the header's exact text.
func NewClaims(now time.Time, tenant, pod, uid, function string) Claims {
	iat := now.UTC().Truncate(time.Second)
	return Claims{
		Tenant: tenant, Pod: pod, UID: uid, FunctionHash: FunctionHash(function),
		IssuedAt: iat, NotBefore: iat.Add(-Backdate), Expires: iat.Add(Lifetime),
	}
}

// FunctionHash is the fnh claim for a function header: base64url, no padding, of its SHA-256.
func FunctionHash(function string) string {
	sum := sha256.Sum256([]byte(function))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Sign makes a token, for tests and local tools. The error tells of a key of the wrong size.
func Sign(key ed25519.PrivateKey, c Claims) (string, error) {
	secret, err := paseto.NewV2AsymmetricSecretKeyFromBytes(key)
	if err != nil {
		return "", fmt.Errorf("read signing key: %w", err)
	}
	t := paseto.NewToken()
	t.SetString(ClaimTenant, c.Tenant)
	t.SetString(ClaimPod, c.Pod)
	t.SetString(ClaimUID, c.UID)
	t.SetString(ClaimFunctionHash, c.FunctionHash)
	t.SetTime(ClaimIssuedAt, c.IssuedAt.UTC())
	t.SetTime(ClaimNotBefore, c.NotBefore.UTC())
	t.SetTime(ClaimExpires, c.Expires.UTC())
	return t.V2Sign(secret), nil
}

// Parse returns the claims of a token that one of the keys has signed. It does not judge the claims: see CheckTime
// and CheckTarget. Every claim of the format must be there, or the token is refused.
func Parse(keys []ed25519.PublicKey, text string) (Claims, error) {
	if len(text) > MaxLength {
		return Claims{}, fmt.Errorf("token has %d bytes, at most %d are read", len(text), MaxLength)
	}
	if len(keys) == 0 {
		return Claims{}, errors.New("no public key is configured, so no token can be verified")
	}
	signed, err := verify(keys, text)
	if err != nil {
		return Claims{}, fmt.Errorf("verify token with %d public keys: %w", len(keys), err)
	}
	return readClaims(signed)
}

// verify tries the keys in order; the last key's error stands for all.
func verify(keys []ed25519.PublicKey, text string) (*paseto.Token, error) {
	parser := paseto.MakeParser(nil)
	var last error
	for _, raw := range keys {
		key, err := paseto.NewV2AsymmetricPublicKeyFromEd25519(raw)
		if err != nil {
			last = err
			continue
		}
		signed, err := parser.ParseV2Public(key, text)
		if err == nil {
			return signed, nil
		}
		last = err
	}
	return nil, last
}

func readClaims(signed *paseto.Token) (Claims, error) {
	var c Claims
	texts := []struct {
		name string
		into *string
	}{{ClaimTenant, &c.Tenant}, {ClaimPod, &c.Pod}, {ClaimUID, &c.UID}, {ClaimFunctionHash, &c.FunctionHash}}
	for _, t := range texts {
		value, err := signed.GetString(t.name)
		if err != nil || value == "" {
			return Claims{}, fmt.Errorf("claim %q is not a non-empty string", t.name)
		}
		*t.into = value
	}
	times := []struct {
		name string
		into *time.Time
	}{{ClaimIssuedAt, &c.IssuedAt}, {ClaimNotBefore, &c.NotBefore}, {ClaimExpires, &c.Expires}}
	for _, t := range times {
		value, err := signed.GetTime(t.name)
		if err != nil {
			return Claims{}, fmt.Errorf("claim %q is not a time in RFC 3339", t.name)
		}
		*t.into = value.UTC()
	}
	return c, nil
}

// CheckTime tells whether the token is valid at now, give or take leeway.
func (c Claims) CheckTime(now time.Time, leeway time.Duration) error {
	early, late := now.Add(leeway), now.Add(-leeway)
	switch {
	case early.Before(c.NotBefore):
		return fmt.Errorf("token is valid from %s, this pod's clock says %s", stamp(c.NotBefore), stamp(now))
	case early.Before(c.IssuedAt):
		return fmt.Errorf("token is issued at %s, this pod's clock says %s", stamp(c.IssuedAt), stamp(now))
	case !late.Before(c.Expires):
		return fmt.Errorf("token expired at %s, this pod's clock says %s", stamp(c.Expires), stamp(now))
	}
	return nil
}

// CheckTarget tells whether the token is meant for this pod and this function.
func (c Claims) CheckTarget(t Target) error {
	switch {
	case c.Pod != t.Pod:
		return fmt.Errorf("token is for pod %q, this is pod %q", c.Pod, t.Pod)
	case t.UID != "" && c.UID != t.UID:
		return fmt.Errorf("token is for pod UID %q, this pod has %q", c.UID, t.UID)
	case c.FunctionHash != FunctionHash(t.Function):
		return errors.New("token is for another function: claim fnh is not the hash of the function header")
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
