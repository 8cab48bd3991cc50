//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// gatewayPort is the port of Envoy in its pod.
const gatewayPort = "10000"

// spoofed is what a client may not say.
func spoofed() http.Header {
	return http.Header{
		"X-Skipper-Instance": {"11111111-2222-3333-4444-555555555555"},
		"X-Skipper-Request":  {"0123456789abcdef0123456789abcdef"},
		"X-Skipper-Cluster":  {"skipper-controllers"},
		"X-Skipper-Anything": {"at all"},
		"X-Skipper-Reason":   {"forged"},
		"X-Forwarded-For":    {"203.0.113.6"},
		"X-Forwarded-Host":   {"forged.example"},
		"X-Forwarded-Proto":  {"https"},
		"Forwarded":          {`for=203.0.113.6;host=forged.example;proto=https`},
	}
}

// What reaches the pod is the client's request, and beside it only what Skipper itself says.
func TestPodSeesTheRequest(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 1)
	r := p.request(t.Context(), http.MethodPut, p.function("a"), "/some/path?x=1&y=%20", strings.NewReader("hello"))
	r.Host = "shop.example:8443"
	r.Header.Set("Content-Type", "text/x-test")
	r.Header.Set("X-Mine", "kept")
	e := mustEcho(t, p.send(r))
	if e.Method != http.MethodPut || e.Path != "/some/path" || e.Body != "hello" || e.Host != "shop.example:8443" {
		t.Errorf("the pod saw %+v", e)
	}
	if e.Headers.Get("X-Mine") != "kept" || e.Headers.Get("Content-Type") != "text/x-test" {
		t.Errorf("headers of the client are lost: %v", e.Headers)
	}
	if len(e.Headers.Values(functionHeader)) != 0 {
		t.Errorf("the pod saw %s: %v", functionHeader, e.Headers)
	}
}

// Names beginning with x-skipper- are Skipper's: a client's own do not pass, and Skipper's two are right.
func TestClientCannotSpeakForSkipper(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 1)
	seen := map[string]bool{}
	for range 5 {
		r := p.request(t.Context(), http.MethodGet, p.function("a"), "/", nil)
		for name, values := range spoofed() {
			r.Header[name] = values
		}
		e := mustEcho(t, p.send(r))
		wantOwnHeaders(t, e)
		id := e.Headers.Get("X-Skipper-Request")
		if len(id) < 32 || seen[id] {
			t.Errorf("x-skipper-request is %q: want an unguessable id for each request, seen %v", id, seen)
		}
		seen[id] = true
	}
}

// wantOwnHeaders: of all names beginning with x-skipper-, the pod saw the two that are for it, once and right.
func wantOwnHeaders(t *testing.T, e echoed) {
	t.Helper()
	for name, values := range e.Headers {
		if !strings.HasPrefix(name, "X-Skipper-") {
			continue
		}
		if name != "X-Skipper-Instance" && name != "X-Skipper-Request" || len(values) != 1 || values[0] == spoofed().Get(name) {
			t.Errorf("the pod saw %s: %q", name, values)
		}
	}
	if got := e.Headers.Get("X-Skipper-Instance"); got != string(e.PodUID) {
		t.Errorf("x-skipper-instance is %q, want the pod's UID %s", got, e.PodUID)
	}
}

// Forwarding headers name the client as Envoy sees it, and nothing that the client made up.
func TestForwardedHeadersOfAnIPv4Client(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 1)
	pod := p.systemPod(t, gatewayName)
	skipUnlessNode(t, pod.Status.HostIP)
	wantForwarded(t, p, net.JoinHostPort(pod.Status.PodIP, gatewayPort), (&net.Dialer{}).DialContext)
}

func TestForwardedHeadersOfAnIPv6Client(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 1)
	envoy := processOf(t, p.systemPod(t, gatewayName), "envoy")
	wantForwarded(t, p, net.JoinHostPort("::1", gatewayPort), envoy.dial)
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// wantForwarded sends a request to Envoy itself, behind no Service, so that the client's address is known.
func wantForwarded(t *testing.T, p *pool, address string, dial dialer) {
	t.Helper()
	client := &recorder{dial: dial}
	transport := &http.Transport{DialContext: client.DialContext}
	defer transport.CloseIdleConnections()
	r := p.request(t.Context(), http.MethodGet, p.function("a"), "/", nil)
	r.URL.Host, r.Host = address, "shop.example:8443"
	for name, values := range spoofed() {
		r.Header[name] = values
	}
	e := mustEcho(t, sendWith(&http.Client{Transport: transport}, r))
	ip := client.local()
	for name, want := range map[string]string{"X-Forwarded-For": ip.String(), "X-Forwarded-Host": r.Host, "X-Forwarded-Proto": "http"} {
		if got := e.Headers.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if err := checkForwarded(e.Headers.Values("Forwarded"), ip, r.Host); err != nil {
		t.Errorf("%v: Forwarded is %q", err, e.Headers.Values("Forwarded"))
	}
}

// recorder remembers the client's own address. Safe for concurrent use.
type recorder struct {
	dial dialer
	mu   sync.Mutex
	conn net.Conn
}

func (r *recorder) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := r.dial(ctx, network, address)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conn = conn
	return conn, err
}

func (r *recorder) local() netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	return netip.MustParseAddrPort(r.conn.LocalAddr().String()).Addr()
}

// checkForwarded reads one RFC 7239 element, quoted where a value has a colon.
func checkForwarded(values []string, ip netip.Addr, host string) error {
	if len(values) != 1 || strings.Contains(values[0], ",") {
		return errors.New("want one element")
	}
	want := map[string]string{"host": host, "proto": "http", "for": ip.String()}
	for pair := range strings.SplitSeq(values[0], ";") {
		name, text, _ := strings.Cut(pair, "=")
		name = strings.ToLower(name)
		value, err := strconv.Unquote(text)
		if err != nil && strings.ContainsAny(text, `:[]"`) {
			return fmt.Errorf("%s needs quotes: %s", name, text)
		} else if err != nil {
			value = text
		}
		if name == "for" {
			value = nodeAddress(value)
		}
		if expected, asked := want[name]; asked && value != expected {
			return fmt.Errorf("%s is %s, want %s", name, value, expected)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		return fmt.Errorf("missing %v", want)
	}
	return nil
}

// nodeAddress is the IP of a node, which may have a port; an IPv6 address stands in brackets, else it is wrong.
func nodeAddress(node string) string {
	if host, _, err := net.SplitHostPort(node); err == nil {
		return host
	}
	if inside, ok := strings.CutPrefix(node, "["); ok {
		return strings.TrimSuffix(inside, "]")
	}
	return strings.ReplaceAll(node, ":", "(no brackets)")
}

// The function's own errors are its own: nothing is added, and nothing tried again.
func TestErrorsOfTheFunctionPassUntouched(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 1)
	uid := mustEcho(t, p.get(t.Context(), p.function("a"), "/")).PodUID
	for _, status := range []int{400, 401, 403, 404, 408, 421, 429, 431, 500, 502, 503, 504} {
		a := p.get(t.Context(), p.function("a"), fmt.Sprintf("/status/%d", status))
		if a.err != nil || a.status != status || string(a.body) != fmt.Sprintf("status %d\n", status) {
			t.Errorf("want the function's own %d: %s", status, a)
		}
		if a.reason() != "" || a.header.Get("Retry-After") != "" || a.header.Get("X-Echo-Uid") != string(uid) {
			t.Errorf("want the headers of pod %s alone: %s, headers %v", uid, a, a.header)
		}
	}
	p.waitFull(t)
	p.wantClaims(t, "", 1)
}

// A function cannot speak as Skipper: its x-skipper-reason does not reach the client.
func TestReasonOfTheFunctionIsRemoved(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 1)
	a := p.get(t.Context(), p.function("a"), "/status/503?header=x-skipper-reason:forged&header=x-mine:kept")
	if a.status != http.StatusServiceUnavailable || a.reason() != "" || a.header.Get("X-Mine") != "kept" {
		t.Errorf("want the function's 503 with its x-mine and without a reason: %s, headers %v", a, a.header)
	}
}
