package token_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"aidanwoods.dev/go-paseto"
	"github.com/google/go-cmp/cmp"

	"skipper/function/token"
)

var issued = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

const function = `{"namespace":"prod","deployment":"echo-server","tenant":"tenant-123","metadata":"v2","scale":{"max_instances":10}}`

func key(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func public(k ed25519.PrivateKey) ed25519.PublicKey {
	return k.Public().(ed25519.PublicKey)
}

func sampleClaims() token.Claims {
	return token.NewClaims(issued, "tenant-123", "echo-server-7d9f-abcde", "0b9d3c1e-0000-4000-8000-000000000001", function)
}

func sign(t *testing.T, k ed25519.PrivateKey, c token.Claims) string {
	t.Helper()
	text, err := token.Sign(k, c)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The text is the agreement with the controller: Ed25519 signatures have no randomness, so the same key and claims
// give the same bytes in any implementation that writes the members in the order of their names.
func TestTokenTextIsPinned(t *testing.T) {
	want, err := os.ReadFile("testdata/token.txt")
	if err != nil {
		t.Fatal(err)
	}
	got := sign(t, key(1), sampleClaims())
	if diff := cmp.Diff(strings.TrimSpace(string(want)), got); diff != "" {
		t.Errorf("token (-want +got):\n%s", diff)
	}
}

// A second reader of the format, which knows only PASETO's own text.
func TestTokenPayloadHasTheNamedMembers(t *testing.T) {
	text := sign(t, key(1), sampleClaims())
	body, ok := strings.CutPrefix(text, "v2.public.")
	if !ok {
		t.Fatalf("token %q has another prefix", text)
	}
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(raw[:len(raw)-ed25519.SignatureSize], &got); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(function))
	want := map[string]string{
		"sub": "tenant-123", "pod": "echo-server-7d9f-abcde", "uid": "0b9d3c1e-0000-4000-8000-000000000001",
		"iat": "2026-08-01T12:00:00Z", "nbf": "2026-08-01T11:59:00Z", "exp": "2026-08-08T12:00:00Z",
		"fnh": base64.RawURLEncoding.EncodeToString(sum[:]),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("payload (-want +got):\n%s", diff)
	}
}

func TestParseReturnsWhatWasSigned(t *testing.T) {
	want := sampleClaims()
	keys := []ed25519.PublicKey{public(key(2)), public(key(1))}
	got, err := token.Parse(keys, sign(t, key(1), want))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	good := sign(t, key(1), sampleClaims())
	noUID := sampleClaims()
	noUID.UID = ""
	keys := []ed25519.PublicKey{public(key(1))}
	rows := []struct {
		name string
		keys []ed25519.PublicKey
		text string
	}{
		{"no keys", nil, good},
		{"another key", []ed25519.PublicKey{public(key(2))}, good},
		{"key of the wrong size", []ed25519.PublicKey{{1, 2, 3}}, good},
		{"empty", keys, ""},
		{"no token", keys, "hello"},
		{"cut short", keys, good[:len(good)-4]},
		{"changed byte", keys, strings.Replace(good, "v2.public.e", "v2.public.f", 1)},
		{"another version", keys, strings.Replace(good, "v2.", "v4.", 1)},
		{"footer added", keys, good + ".Zm9vdGVy"},
		{"too long", keys, good + strings.Repeat("A", token.MaxLength)},
		{"empty claim", keys, sign(t, key(1), noUID)},
		{"number for a claim", keys, signWith(t, token.ClaimTenant, 7)},
		{"null for a claim", keys, signWith(t, token.ClaimPod, nil)},
		{"unix time", keys, signWith(t, token.ClaimExpires, issued.Unix())},
		{"null for a time", keys, signWith(t, token.ClaimIssuedAt, nil)},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if c, err := token.Parse(row.keys, row.text); err == nil {
				t.Errorf("accepted, claims %+v", c)
			}
		})
	}
}

// signWith signs the sample with one claim replaced by a value of another kind.
func signWith(t *testing.T, name string, value any) string {
	t.Helper()
	claims := map[string]any{
		"sub": "a", "pod": "p", "uid": "u", "fnh": "h",
		"iat": "2026-08-01T12:00:00Z", "nbf": "2026-08-01T12:00:00Z", "exp": "2026-08-01T12:00:00Z",
	}
	claims[name] = value
	tok, err := paseto.MakeToken(claims, nil)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := paseto.NewV2AsymmetricSecretKeyFromEd25519(key(1))
	if err != nil {
		t.Fatal(err)
	}
	return tok.V2Sign(secret)
}

func TestCheckTime(t *testing.T) {
	c := sampleClaims()
	ahead := c
	ahead.IssuedAt = issued.Add(time.Hour)
	rows := []struct {
		name   string
		claims token.Claims
		now    time.Time
		leeway time.Duration
		ok     bool
	}{
		{"at issue", c, issued, 0, true},
		{"clock behind by nbf's margin", c, issued.Add(-60 * time.Second), time.Minute, true},
		{"clock behind by more", c, issued.Add(-61 * time.Second), time.Minute, false},
		{"before nbf", c, issued.Add(-121 * time.Second), time.Minute, false},
		{"just before the end", c, issued.Add(token.Lifetime - time.Second), 0, true},
		{"at the end", c, issued.Add(token.Lifetime), 0, false},
		{"after the end, within leeway", c, issued.Add(token.Lifetime + 59*time.Second), time.Minute, true},
		{"after the end and leeway", c, issued.Add(token.Lifetime + time.Minute), time.Minute, false},
		{"issued in the future though nbf has passed", ahead, issued, time.Minute, false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if err := row.claims.CheckTime(row.now, row.leeway); (err == nil) != row.ok {
				t.Errorf("CheckTime: %v, want ok %t", err, row.ok)
			}
		})
	}
}

func TestCheckTarget(t *testing.T) {
	c := sampleClaims()
	rows := []struct {
		name   string
		target token.Target
		ok     bool
	}{
		{"this pod", token.Target{Pod: c.Pod, UID: c.UID, Function: function}, true},
		{"this pod, UID unknown", token.Target{Pod: c.Pod, Function: function}, true},
		{"another name", token.Target{Pod: "other", UID: c.UID, Function: function}, false},
		{"another UID", token.Target{Pod: c.Pod, UID: "other", Function: function}, false},
		{"one byte more", token.Target{Pod: c.Pod, UID: c.UID, Function: function + " "}, false},
		{"nothing", token.Target{}, false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if err := c.CheckTarget(row.target); (err == nil) != row.ok {
				t.Errorf("CheckTarget: %v, want ok %t", err, row.ok)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	pinned, err := os.ReadFile("testdata/token.txt")
	if err != nil {
		f.Fatal(err)
	}
	good := strings.TrimSpace(string(pinned))
	for _, seed := range []string{good, "", "v2.public.", "v2.public.AAAA.BBBB", "v2.local.AAAA", good + ".", good[:40], "....", "v2.public.é"} {
		f.Add(seed)
	}
	keys := []ed25519.PublicKey{public(key(1))}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := token.Parse(keys, text)
		if err != nil {
			return
		}
		if diff := cmp.Diff(sampleClaims(), c); diff != "" {
			t.Errorf("forged token %q accepted (-signed +got):\n%s", text, diff)
		}
	})
}
