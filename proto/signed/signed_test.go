package signed_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"

	"aidanwoods.dev/go-paseto"
	"github.com/google/go-cmp/cmp"

	"skipper/proto/signed"
)

var start = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

const function = `{"namespace":"prod","deployment":"echo","tenant":"t","scale":{"max_instances":1}}`

func key(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func public(n byte) ed25519.PublicKey { return key(n).Public().(ed25519.PublicKey) }

func claims() signed.Claims {
	return signed.Claims{Function: function, Audience: "shop", NotBefore: start, Expires: start.Add(time.Hour)}
}

func sign(t testing.TB, n byte, c signed.Claims) string {
	t.Helper()
	text, err := signed.Sign(key(n), c)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// signWith signs the sample with one member replaced, or removed by nil.
func signWith(t *testing.T, name string, value any) string {
	t.Helper()
	members := map[string]any{"function": function, "aud": "shop", "nbf": "2026-08-01T12:00:00Z", "exp": "2026-08-01T13:00:00Z", "other": 7}
	members[name] = value
	if value == nil {
		delete(members, name)
	}
	tok, err := paseto.MakeToken(members, nil)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := paseto.NewV2AsymmetricSecretKeyFromEd25519(key(1))
	if err != nil {
		t.Fatal(err)
	}
	return tok.V2Sign(secret)
}

func TestVerifyReturnsWhatWasSigned(t *testing.T) {
	for _, keys := range [][]ed25519.PublicKey{{public(1)}, {public(2), public(1)}} {
		got, err := signed.Verify(keys, sign(t, 1, claims()))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(claims(), got); d != "" {
			t.Errorf("claims (-want +got):\n%s", d)
		}
	}
	if _, err := signed.Verify([]ed25519.PublicKey{public(1)}, signWith(t, "more", "than needed")); err != nil {
		t.Errorf("token with members that are not known: %v", err)
	}
}

func TestVerifyRefuses(t *testing.T) {
	good, one := sign(t, 1, claims()), []ed25519.PublicKey{public(1)}
	for name, row := range map[string]struct {
		keys []ed25519.PublicKey
		text string
		says string
	}{
		"no key":               {nil, good, "none of the 0 keys"},
		"another key":          {[]ed25519.PublicKey{public(2)}, good, "none of the 1 keys"},
		"key of another size":  {[]ed25519.PublicKey{{1}}, good, "public key"},
		"empty":                {one, "", "PASETO"},
		"JSON":                 {one, function, "PASETO"},
		"another version":      {one, strings.Replace(good, "v2.", "v4.", 1), "PASETO"},
		"footer":               {one, good + ".Zm9v", "footer"},
		"cut short":            {one, good[:len(good)-3], "changed since"},
		"only the prefix":      {one, signed.Prefix, "changed since"},
		"changed":              {one, strings.Replace(good, "v2.public.e", "v2.public.f", 1), "changed since"},
		"two with a comma":     {one, good + "," + good, "footer"},
		"too long":             {one, good + strings.Repeat("A", signed.MaxLength), "at most"},
		"no function":          {one, signWith(t, "function", nil), "function"},
		"function as object":   {one, signWith(t, "function", map[string]string{"a": "b"}), "function"},
		"empty audience":       {one, signWith(t, "aud", ""), "aud"},
		"list of audiences":    {one, signWith(t, "aud", []string{"shop"}), "aud"},
		"no start":             {one, signWith(t, "nbf", nil), "nbf"},
		"end in seconds":       {one, signWith(t, "exp", 1785589200), "exp"},
		"end that is no time":  {one, signWith(t, "exp", "tomorrow"), "exp"},
		"null for a character": {one, strings.Replace(good, "e", "\x00", 1), "changed since"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := signed.Verify(row.keys, row.text)
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("claims %+v, error %v; want one that says %q", c, err, row.says)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	for name, row := range map[string]struct {
		audience string
		now      time.Time
		says     string
		expired  bool
	}{
		"in the middle":    {"shop", start.Add(time.Minute), "", false},
		"first moment":     {"shop", start, "", false},
		"last moment":      {"shop", start.Add(time.Hour - 1), "", false},
		"too early":        {"shop", start.Add(-1), "holds from", false},
		"at the end":       {"shop", start.Add(time.Hour), "expired", true},
		"another audience": {"bank", start, `meant for "shop"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := claims().Check(row.audience, row.now)
			if (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
				t.Errorf("error %v, want %q", err, row.says)
			}
			if errors.Is(err, signed.ErrExpired) != row.expired {
				t.Errorf("error %v, want expired %v", err, row.expired)
			}
		})
	}
}

func TestSignRefusesWhatNobodyWouldTake(t *testing.T) {
	for name, change := range map[string]func(*signed.Claims){
		"no function": func(c *signed.Claims) { c.Function = "" },
		"no audience": func(c *signed.Claims) { c.Audience = "" },
		"no time":     func(c *signed.Claims) { c.Expires = c.NotBefore },
		"too long":    func(c *signed.Claims) { c.Function = strings.Repeat("x", signed.MaxLength) },
	} {
		c := claims()
		change(&c)
		if text, err := signed.Sign(key(1), c); err == nil {
			t.Errorf("%s: signed %q", name, text)
		}
	}
	if _, err := signed.Sign(key(1)[:5], claims()); err == nil {
		t.Error("a key of five bytes signs")
	}
}

func pemOf(t testing.TB, kind string, k any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func TestParsePublicKeys(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	first, second := pemOf(t, "PUBLIC KEY", public(1)), pemOf(t, "PUBLIC KEY", public(2))
	for name, row := range map[string]struct {
		text string
		want []ed25519.PublicKey
	}{
		"one":                 {first, []ed25519.PublicKey{public(1)}},
		"two with space":      {"\n" + first + "\n\n" + second, []ed25519.PublicKey{public(1), public(2)}},
		"empty":               {" \n", nil},
		"something behind":    {first + "garbage", nil},
		"private":             {pemOf(t, "PRIVATE KEY", public(1)), nil},
		"another algorithm":   {first + pemOf(t, "PUBLIC KEY", ec.Public()), nil},
		"nothing in the body": {string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY"})), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := signed.ParsePublicKeys([]byte(row.text))
			if d := cmp.Diff(row.want, got); d != "" || (err == nil) != (row.want != nil) {
				t.Errorf("error %v, keys (-want +got):\n%s", err, d)
			}
		})
	}
}

// FuzzVerify: nothing is taken but what the key has signed.
func FuzzVerify(f *testing.F) {
	good := sign(f, 1, claims())
	for _, seed := range []string{good, sign(f, 2, claims()), good + ".Zm9v", signed.Prefix, "", function, good[:40], strings.ToUpper(good)} {
		f.Add(seed)
	}
	keys := []ed25519.PublicKey{public(1)}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := signed.Verify(keys, text)
		if err != nil {
			return
		}
		if c != claims() { // the same bytes may be written in more than one way
			t.Errorf("%q was taken as %+v", text, c)
		}
	})
}
