package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	skipperpb "skipper/proto"
	"skipper/proto/signed"

	"skipper/envoy"
	"skipper/envoy/envoytest"
)

// signingKey returns a key and the file of its public half.
func signingKey(t testing.TB) (ed25519.PrivateKey, string) {
	t.Helper()
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "keys.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return key, path
}

func tokenOf(t testing.TB, key ed25519.PrivateKey, f *skipperpb.Function, from, until time.Duration) string {
	t.Helper()
	now := time.Now()
	token, err := signed.Sign(key, signed.Claims{Function: text(f), Audience: signed.DefaultAudience, NotBefore: now.Add(from), Expires: now.Add(until)})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestEnvoyTellsListenersApart: the public listener takes tokens for one
// deployment, the other one what it always took.
func TestEnvoyTellsListenersApart(t *testing.T) {
	key, path := signingKey(t)
	public := envoytest.FreePorts(t, 1)[0]
	g := startGatewayWith(t, newPlane(t, startPods(t, 1, nil)...), func(c *config) {
		c.functions.publicKeys, c.functions.requireSigned = []string{path}, []string{"public"}
		c.functions.allowDeployments = []string{"public=prod/echo"}
	}, func(c *envoy.Config) { c.Listeners = []envoy.Listener{{Name: "public", Port: public}} })
	inner, outer := g.url, fmt.Sprintf("http://127.0.0.1:%d", public)
	other := function("t")
	other.Deployment = "other"
	good := tokenOf(t, key, function("t"), -time.Minute, time.Hour)
	for _, row := range []struct {
		name, url string
		headers   []string
		status    int
		reason    string
	}{
		{"plain at home", inner, []string{text(function("t"))}, 200, ""},
		{"plain in public", outer, []string{text(function("t"))}, 403, "function_unsigned"},
		{"token in public", outer, []string{good}, 200, ""},
		{"token in public again", outer, []string{good}, 200, ""},
		{"token at home", inner, []string{good}, 200, ""},
		{"changed token", outer, []string{good[:len(good)-6] + "AAAAAA"}, 403, "token_invalid"},
		{"early token", outer, []string{tokenOf(t, key, function("t"), time.Hour, 2*time.Hour)}, 403, "token_invalid"},
		{"old token", outer, []string{tokenOf(t, key, function("t"), -2*time.Hour, -time.Hour)}, 403, "token_expired"},
		{"another deployment", outer, []string{tokenOf(t, key, other, -time.Minute, time.Hour)}, 403, "function_not_allowed"},
		{"token twice", outer, []string{good, good}, 400, "header_repeated"},
		{"token and JSON", outer, []string{good, text(function("t"))}, 400, "header_repeated"},
		{"JSON twice", inner, []string{text(function("t")), text(function("t"))}, 400, "header_repeated"},
		{"two with a comma", outer, []string{good + ", " + good}, 403, "token_invalid"},
		{"nothing", outer, nil, 400, "header_missing"},
	} {
		t.Run(row.name, func(t *testing.T) {
			req := g.request(t.Context(), t, "/", row.headers...)
			req.Header.Set(envoy.ListenerMetadata, "ingress") // which a client may well try
			req.URL.Host = strings.TrimPrefix(row.url, "http://")
			res, err := g.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if got := res.Header.Get("X-Skipper-Reason"); res.StatusCode != row.status || got != row.reason {
				t.Errorf("%d %q, want %d %q", res.StatusCode, got, row.status, row.reason)
			}
		})
	}
}

// TestTraceContextIsCarriedThrough: also into the second pass, to the byte.
func TestTraceContextIsCarriedThrough(t *testing.T) {
	sent := http.Header{
		"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, "Tracestate": {"a=1,b=2"}, "Baggage": {"k=v"},
		"B3":           {"80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1-05e3ac9a4f6e3b90"},
		"X-B3-Traceid": {"80f198ee56343ba864fe8b2a57d3eff7"}, "X-B3-Spanid": {"e457b5a2e4d86bd1"}, "X-B3-Sampled": {"1"}, "X-Request-Id": {"mine"},
	}
	seen := make(chan http.Header, 10)
	pod := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header }))
	t.Cleanup(pod.Close)
	for name, pods := range map[string][]string{
		"first pass": {pod.Listener.Addr().String()}, "second pass": {"127.0.0.1:1", pod.Listener.Addr().String()},
	} {
		for _, forward := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, forwarded %v", name, forward), func(t *testing.T) {
				g := startGatewayWith(t, newPlane(t, pods...), nil, func(c *envoy.Config) { c.ForwardTrace = forward })
				req := g.request(t.Context(), t, "/", text(function("t")))
				for k, v := range sent {
					req.Header[k] = v
				}
				res, err := g.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				if res.StatusCode != http.StatusOK {
					t.Fatalf("status %d, reason %q", res.StatusCode, res.Header.Get("X-Skipper-Reason"))
				}
				got := <-seen
				for k, v := range sent {
					if d := cmp.Diff(v, got[k]); d != "" {
						t.Errorf("%s (-want +got):\n%s", k, d)
					}
				}
			})
		}
	}
}

// accessLog are Envoy's lines by path; none of them may have a secret.
func accessLog(t *testing.T, output string, secrets ...string) map[string]map[string]any {
	t.Helper()
	lines := map[string]map[string]any{}
	for line := range strings.Lines(output) {
		for _, secret := range secrets {
			if strings.HasPrefix(line, "{") && strings.Contains(line, secret) {
				t.Errorf("line has %q: %s", secret, line)
			}
		}
		var l map[string]any
		if json.Unmarshal([]byte(line), &l) == nil {
			lines[fmt.Sprint(l["path"])] = l
		}
	}
	return lines
}

// checkMeasures looks at what differs from run to run.
func checkMeasures(t *testing.T, a map[string]any) {
	t.Helper()
	if id, _ := a["request"].(string); len(id) != 32 {
		t.Errorf("request id is %v", a["request"])
	}
	for _, k := range []string{"duration_ms", "upstream_ms", "answer_ms"} {
		if _, ok := a[k].(float64); !ok {
			t.Errorf("%s is %v, want a number: %v", k, a[k], a)
		}
	}
}

// TestAccessLogNamesTheFunction: a line says which function, which instance,
// and what became of it, and nothing that is secret.
func TestAccessLogNamesTheFunction(t *testing.T) {
	key, path := signingKey(t)
	boastful := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Skipper-Reason", "invented")
		fmt.Fprint(w, "ok")
	}))
	t.Cleanup(boastful.Close)
	addr := boastful.Listener.Addr().String()
	g := startGatewayOn(t, newPlane(t, addr), func(c *config) {
		c.functions.publicKeys, c.functions.allowNamespaces = []string{path}, []string{"prod"}
	})
	elsewhere := function("t")
	elsewhere.Namespace = "test"
	token := tokenOf(t, key, function("t"), -time.Minute, time.Hour)
	g.get(t, "/a?secret=1", token)
	g.get(t, "/b", text(function("u"))) // there is no second pod
	g.get(t, "/c", text(elsewhere))
	g.get(t, "/d")
	envoytest.Eventually(t, "all ext_proc streams are closed", func() bool { // else Envoy may die of its end before it has logged
		_, stats, err := g.envoy.Admin(t.Context(), http.MethodGet, "/stats?filter="+envoy.ExtprocCluster+".upstream_rq_active")
		return err == nil && strings.Contains(stats, "upstream_rq_active: 0")
	})
	g.envoy.Stop()
	lines := accessLog(t, g.envoy.Output(), "secret", token[len(token)-20:], "v2.public")
	for path, want := range map[string]map[string]any{
		"/a": {"namespace": "prod", "deployment": "echo", "tenant": "t", "instance": "uid-" + addr, "upstream": addr, "status": 200.0, "attempts": 1.0, "reason": nil, "flags": "-", "listener": "ingress", "method": "GET"},
		"/b": {"namespace": "prod", "deployment": "echo", "tenant": "u", "instance": nil, "upstream": nil, "status": 429.0, "reason": "limit_reached", "details": "skipper_limit_reached"},
		"/c": {"namespace": nil, "tenant": nil, "status": 403.0, "reason": "function_not_allowed"},
		"/d": {"namespace": nil, "tenant": nil, "status": 400.0, "reason": "header_missing"},
	} {
		got := map[string]any{}
		for k := range want {
			got[k] = lines[path][k]
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("line of %s (-want +got):\n%s\n%v", path, d, lines[path])
		}
	}
	checkMeasures(t, lines["/a"])
}
