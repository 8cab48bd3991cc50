package envoy_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skipper/envoy"
)

// spoofed is what a client must not be able to say to a pod or to Envoy.
func spoofed() http.Header {
	h := http.Header{}
	for _, name := range []string{
		"x-skipper-instance", "x-skipper-request", "x-skipper-cluster", "x-skipper-reason", "x-skipper-misdirected",
		"x-skipper-token", "x-skipper-", "x-skipper-func", "x-skipper-functions", "x-skipper-fun-x", "x_skipper_instance", "x-skipper_request",
		"x_skipper_function",
		"x-envoy-original-dst-host", "x-envoy-retry-on", "x-envoy-max-retries", "x-envoy-upstream-rq-timeout-ms",
		"x-envoy-hedge-on-per-try-timeout", "x-envoy-internal", "x-envoy-attempt-count", "x-envoy-decorator-operation",
		"forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x_forwarded_for", "x-forwarded_host",
	} {
		h[name] = []string{"spoofed"}
	}
	return h
}

// headersPod answers with what it was sent.
func headersPod(w http.ResponseWriter, r *http.Request) {
	h := r.Header.Clone()
	h.Set("Host", r.Host)
	h.Set("Uri", r.RequestURI)
	h.Set("Proto", r.Proto)
	_ = json.NewEncoder(w).Encode(h)
}

func podSaw(t *testing.T, a answer) http.Header {
	t.Helper()
	var h http.Header
	if err := json.Unmarshal([]byte(a.body), &h); err != nil {
		t.Fatalf("status %d, body %q: %v", a.status, a.body, err)
	}
	return h
}

func TestPodSeesTrueHeadersOnly(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	g.serverPod(t, "fn", http.HandlerFunc(headersPod))
	for _, row := range []struct{ name, dial, xff, node string }{
		{"IPv4 client", "127.0.0.1", "127.0.0.1", `127\.0\.0\.1:\d+`},
		{"IPv6 client", "::1", "::1", `\[::1\]:\d+`},
	} {
		t.Run(row.name, func(t *testing.T) {
			req := g.request(t, http.MethodGet, "fn", nil)
			req.URL.Host = g.addr(row.dial)
			req.Host = "shop.example:8443"
			for k, v := range spoofed() {
				req.Header[k] = v
			}
			req.Header.Set("X-Request-Id", "mine")
			got := podSaw(t, g.do(t, req))
			forwarded := got.Get("Forwarded")
			if want := `^for="` + row.node + `";host="shop\.example:8443";proto=http$`; !regexp.MustCompile(want).MatchString(forwarded) {
				t.Errorf("Forwarded is %s, want %s", forwarded, want)
			}
			got.Del("Forwarded")
			want := http.Header{
				"Accept-Encoding": {"gzip"}, "User-Agent": {"Go-http-client/1.1"},
				"Host": {"shop.example:8443"}, "Uri": {"/a/../b//c?q=1"}, "Proto": {"HTTP/1.1"},
				"X-Forwarded-For": {row.xff}, "X-Forwarded-Host": {"shop.example:8443"}, "X-Forwarded-Proto": {"http"},
				"X-Skipper-Instance": {got.Get("X-Skipper-Instance")}, "X-Skipper-Request": {"request-of-fn"}, "X-Request-Id": {"mine"},
				"X-Envoy-Attempt-Count": {"1"},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("pod saw (-want +got):\n%s", diff)
			}
			if !strings.HasPrefix(got.Get("X-Skipper-Instance"), "uid-of-") {
				t.Errorf("instance is %q", got.Get("X-Skipper-Instance"))
			}
		})
	}
}

func TestTrustedProxyIsAppendedTo(t *testing.T) {
	t.Parallel()
	g := startGateway(t, func(c *envoy.Config) { c.TrustedHops = 1 })
	g.serverPod(t, "fn", http.HandlerFunc(headersPod))
	req := g.request(t, http.MethodGet, "fn", nil)
	req.Header.Set("X-Forwarded-For", "192.0.2.7")
	req.Header.Set("X-Forwarded-Proto", "https")
	req.Header.Set("X-Forwarded-Host", "outer.example")
	req.Header.Set("Forwarded", "for=192.0.2.7;proto=https")
	got := podSaw(t, g.do(t, req))
	if all := got["Forwarded"]; len(all) != 2 || all[0] != "for=192.0.2.7;proto=https" || !strings.HasPrefix(all[1], `for="127.0.0.1:`) {
		t.Errorf("Forwarded is %q", all)
	}
	for name, want := range map[string]string{
		"X-Forwarded-For": "192.0.2.7,127.0.0.1", "X-Forwarded-Host": "outer.example", "X-Forwarded-Proto": "https",
	} {
		if diff := cmp.Diff([]string{want}, got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestExtprocSeesWhatItReadsAndNoMore(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	req := g.request(t, http.MethodPost, "other", nil)
	for k, v := range spoofed() {
		req.Header[k] = v
	}
	req.Header.Set("Grpc-Timeout", "3S")
	g.do(t, req)
	want := []map[string]string{{":method": "POST", ":path": "/a/../b//c?q=1", "x-skipper-function": "other", "grpc-timeout": "3S"}}
	if diff := cmp.Diff(want, g.processor.requests()); diff != "" {
		t.Errorf("extproc saw (-want +got):\n%s", diff)
	}
}

func TestRepeatedFunctionHeaderReachesExtproc(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	req := g.request(t, http.MethodGet, "", nil)
	req.Header[envoy.HeaderFunction] = []string{"one", "two"}
	g.do(t, req)
	if got := g.processor.requests(); len(got) != 1 || got[0][envoy.HeaderFunction] == "" {
		t.Errorf("extproc saw %v", got)
	}
}

func TestHostCannotBreakOutOfForwarded(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	g.serverPod(t, "fn", http.HandlerFunc(headersPod))
	text := raw(t, g, "GET / HTTP/1.1\r\nhost: a\";for=evil;x=\"\r\nx-skipper-function: fn\r\nconnection: close\r\n\r\n")
	if !strings.HasPrefix(text, "HTTP/1.1 400 ") || strings.Contains(text, "evil") {
		t.Errorf("answer to a host with quotes:\n%s", text)
	}
}
