package trust

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc/metadata"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/reason"
	"skipper/proto/signed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func private(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

// write makes path hold the public keys.
func write(t testing.TB, path string, keys ...byte) {
	t.Helper()
	var text []byte
	for _, n := range keys {
		der, err := x509.MarshalPKIXPublicKey(private(n).Public())
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func plain(tenant string) []byte {
	return fn.Marshal(&skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: tenant, Scale: &skipperpb.Scale{MaxInstances: 1}})
}

func token(t testing.TB, n byte, function string, changes ...func(*signed.Claims)) []byte {
	t.Helper()
	c := signed.Claims{Function: function, Audience: "shop", NotBefore: start, Expires: start.Add(time.Hour)}
	for _, change := range changes {
		change(&c)
	}
	text, err := signed.Sign(private(n), c)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(text)
}

func open(t testing.TB, keys ...byte) (*Keys, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.pem")
	write(t, path, keys...)
	k, err := OpenKeys(KeysOptions{Files: []string{path}, Audience: "shop", Tokens: 64, Logger: zap.NewNop(), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return k, path
}

func rules(t testing.TB, namespaces, deployments, signed []string) Rules {
	t.Helper()
	r, err := ParseRules(namespaces, deployments, signed)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// reasonOf is the reason of an Error, "fn" for an error of the function's JSON.
func reasonOf(err error) reason.Reason {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Reason
	}
	return "fn"
}

func TestGate(t *testing.T) {
	keys, _ := open(t, 1, 2)
	some := rules(t, []string{"prod"}, []string{"inner=test/echo"}, []string{"public"})
	json := string(plain("t"))
	elsewhere := strings.Replace(json, "prod", "test", 1)
	for name, row := range map[string]struct {
		keys     *Keys
		rules    Rules
		listener string
		header   []byte
		now      time.Time
		want     reason.Reason
	}{
		"plain":                                 {keys, some, "", []byte(json), start, ""},
		"plain on a listener with a list":       {keys, some, "inner", []byte(elsewhere), start, ""},
		"plain where tokens are wanted":         {keys, some, "public", []byte(json), start, reason.FunctionUnsigned},
		"plain, not listed":                     {keys, some, "", []byte(elsewhere), start, reason.FunctionNotAllowed},
		"plain, no JSON":                        {keys, some, "", []byte("{"), start, "fn"},
		"token":                                 {keys, some, "public", token(t, 1, json), start, ""},
		"token by the other key":                {keys, some, "public", token(t, 2, json), start, ""},
		"token where none is wanted":            {keys, some, "", token(t, 1, json), start, ""},
		"token, not listed":                     {keys, some, "public", token(t, 1, elsewhere), start, reason.FunctionNotAllowed},
		"token by a stranger":                   {keys, some, "public", token(t, 3, json), start, reason.TokenInvalid},
		"token for another audience":            {keys, some, "public", token(t, 1, json, func(c *signed.Claims) { c.Audience = "bank" }), start, reason.TokenInvalid},
		"token too early":                       {keys, some, "public", token(t, 1, json), start.Add(-1), reason.TokenInvalid},
		"token too late":                        {keys, some, "public", token(t, 1, json), start.Add(time.Hour), reason.TokenExpired},
		"token in its last moment":              {keys, some, "public", token(t, 1, json), start.Add(time.Hour - 1), ""},
		"token of no function":                  {keys, some, "public", token(t, 1, "{}"), start, "fn"},
		"token where no key is set":             {nil, Rules{}, "", token(t, 1, json), start, reason.TokenInvalid},
		"plain without rules":                   {nil, Rules{}, "any", []byte(elsewhere), start, ""},
		"token in a token":                      {keys, some, "public", token(t, 1, string(token(t, 1, json))), start, "fn"},
		"space before a token is not a token":   {keys, some, "public", append([]byte(" "), token(t, 1, json)...), start, reason.FunctionUnsigned},
		"two tokens that a proxy had joined":    {keys, some, "public", append(append(token(t, 1, json), ','), token(t, 1, json)...), start, reason.TokenInvalid},
		"two functions that a proxy had joined": {keys, some, "", []byte(json + "," + json), start, "fn"},
	} {
		t.Run(name, func(t *testing.T) {
			g := New(64, row.keys, row.rules)
			for range 2 { // the second time from memory
				f, err := g.Read(row.listener, row.header, row.now)
				if got := reasonOf(err); got != row.want || (f != nil) != (row.want == "") {
					t.Errorf("function %v, error %v; want reason %q", f, err, row.want)
				}
				if f != nil && f.Key.Tenant != "t" {
					t.Errorf("tenant is %q", f.Key.Tenant)
				}
			}
		})
	}
}

func TestTokenEndsThoughItIsRemembered(t *testing.T) {
	keys, _ := open(t, 1)
	g := New(64, keys, rules(t, nil, nil, []string{"*"}))
	raw := token(t, 1, string(plain("t")))
	for _, row := range []struct {
		after time.Duration
		want  reason.Reason
	}{{0, ""}, {time.Hour - 1, ""}, {time.Hour, reason.TokenExpired}, {-1, reason.TokenInvalid}, {time.Minute, ""}} {
		if _, err := g.Read("", raw, start.Add(row.after)); reasonOf(err) != row.want {
			t.Errorf("after %v: %v, want %q", row.after, err, row.want)
		}
	}
	if n := testutil.ToFloat64(keys.metrics.valid); n != 1 {
		t.Errorf("verified %v times, want once", n)
	}
}

func TestWarmRequestAllocatesNothing(t *testing.T) {
	keys, _ := open(t, 1)
	g := New(64, keys, rules(t, []string{"public=other"}, []string{"public=prod/echo"}, []string{"public"}))
	for _, row := range []struct {
		listener string
		raw      []byte
	}{{"public", token(t, 1, string(plain("t")))}, {"", plain("t")}} {
		n := testing.AllocsPerRun(100, func() {
			if _, err := g.Read(row.listener, row.raw, start); err != nil {
				t.Fatal(err)
			}
		})
		if n > 0 {
			t.Errorf("%v allocations on %q, want none", n, row.listener)
		}
	}
}

func TestKeysAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, path := open(t, 1)
		g := New(64, keys, rules(t, nil, nil, []string{"*"}))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- keys.Run(ctx) }()
		takes := func(n byte, want reason.Reason) {
			t.Helper()
			if _, err := g.Read("", token(t, n, string(plain("t"))), start); reasonOf(err) != want {
				t.Errorf("token by key %d: %v, want %q", n, err, want)
			}
		}
		later := func() { time.Sleep(DefaultEvery); synctest.Wait() }
		takes(1, "")
		takes(2, reason.TokenInvalid)
		write(t, path, 1, 2)
		later()
		takes(1, "")
		takes(2, "")
		if err := os.WriteFile(path, []byte("half a file"), 0o600); err != nil {
			t.Fatal(err)
		}
		later()
		takes(1, "")
		write(t, path, 2)
		later()
		takes(1, reason.TokenInvalid) // though it was remembered
		takes(2, "")
		if reloads, failures := testutil.ToFloat64(keys.metrics.reloads), testutil.ToFloat64(keys.metrics.failures); reloads != 2 || failures != 1 {
			t.Errorf("%v reloads and %v failures, want 2 and 1", reloads, failures)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestOpenKeysNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	empty, absent := filepath.Join(dir, "empty.pem"), filepath.Join(dir, "absent.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{empty, absent} {
		_, err := OpenKeys(KeysOptions{Files: []string{path}, Registerer: prometheus.NewRegistry()})
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := OpenKeys(KeysOptions{Registerer: prometheus.NewRegistry()}); err == nil {
		t.Error("keys without a file are open")
	}
}

func TestListenerOf(t *testing.T) {
	for want, md := range map[string]metadata.MD{
		"public": metadata.Pairs(ListenerKey, "public"),
		"":       metadata.Pairs(ListenerKey, "a", ListenerKey, "b"),
	} {
		if got := ListenerOf(metadata.NewIncomingContext(t.Context(), md)); got != want {
			t.Errorf("listener is %q, want %q", got, want)
		}
	}
	if got := ListenerOf(t.Context()); got != "" {
		t.Errorf("listener without metadata is %q", got)
	}
}

func BenchmarkRead(b *testing.B) {
	keys, _ := open(b, 1)
	g := New(64, keys, Rules{})
	for name, raw := range map[string][]byte{"json": plain("t"), "token": token(b, 1, string(plain("t")))} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Read("", raw, start); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("token first seen", func(b *testing.B) {
		raw, set := token(b, 1, string(plain("t"))), keys.current.Load()
		for b.Loop() {
			if _, err := set.open(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}
