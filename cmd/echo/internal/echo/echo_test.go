package echo_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"skipper/cmd/echo/internal/echo"
	"skipper/function"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// assigned is a pod that has the given assignment, or none when it has no tenant.
type assigned function.Assignment

func (a assigned) Assigned() (function.Assignment, bool) {
	return function.Assignment(a), a.Function.Tenant != ""
}

func sample() assigned {
	return assigned{
		Function: function.Function{Namespace: "prod", Deployment: "echo", Tenant: "a", Metadata: "v2", Oneshot: true},
		PodName:  "pod-1", PodUID: "uid-1",
	}
}

// start serves on loopback, over HTTP/1.1 and h2c, and returns the address.
func start(t *testing.T, pod assigned, crash func()) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answers := echo.New(echo.Config{PodName: "free-pod", PodUID: "free-uid", Pod: pod, Crash: crash, Log: zap.NewNop()})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- function.Server{Grace: time.Minute}.Serve(ctx, ln, answers) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("stop: %v", err)
		}
		answers.Close()
	})
	return ln.Addr().String()
}

// both runs a test over each protocol.
func both(t *testing.T, test func(t *testing.T, c *http.Client)) {
	t.Helper()
	for name, h2c := range map[string]bool{"http1": false, "h2c": true} {
		t.Run(name, func(t *testing.T) {
			protocols := new(http.Protocols)
			protocols.SetHTTP1(!h2c)
			protocols.SetUnencryptedHTTP2(h2c)
			transport := &http.Transport{Protocols: protocols}
			t.Cleanup(transport.CloseIdleConnections)
			test(t, &http.Client{Transport: transport})
		})
	}
}

func request(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// do sends a request and reads the whole answer.
func do(t *testing.T, c *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read answer: %v", err)
	}
	return resp, string(body)
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var value T
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&value); err != nil {
		t.Fatalf("decode %q: %v", text, err)
	}
	return value
}

const helloSHA256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

func TestEchoTellsTheWholeRequest(t *testing.T) {
	both(t, func(t *testing.T, c *http.Client) {
		addr := start(t, sample(), nil)
		r := request(t, http.MethodPut, "http://"+addr+"//a/../b?x=1&y=%20", strings.NewReader("hello"))
		r.Host = "shop.example"
		r.Header = http.Header{"x-custom": {"1", "2"}, "User-Agent": {"test"}, "Accept-Encoding": {"identity"}}
		resp, body := do(t, c, r)
		got := decode[echo.Echo](t, body)
		headers := http.Header{"X-Custom": {"1", "2"}, "User-Agent": {"test"}, "Accept-Encoding": {"identity"}, "Content-Length": {"5"}}
		want := echo.Echo{
			Method: "PUT", Path: "//a/../b", Query: "x=1&y=%20", Host: "shop.example", Proto: resp.Proto, Headers: headers,
			Namespace: "prod", Deployment: "echo", Tenant: "a", Metadata: "v2", Oneshot: true, PodName: "pod-1", PodUID: "uid-1",
			Digest: echo.Digest{Bytes: 5, SHA256: helloSHA256}, Body: "hello",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("echo (-want +got):\n%s", diff)
		}
		signature := []string{resp.Header.Get(echo.HeaderPod), resp.Header.Get(echo.HeaderUID), resp.Header.Get(echo.HeaderTenant)}
		if diff := cmp.Diff([]string{"pod-1", "uid-1", "a"}, signature); diff != "" {
			t.Errorf("signature (-want +got):\n%s", diff)
		}
	})
}

func TestEchoShowsOnlySmallText(t *testing.T) {
	rows := []struct{ name, body, want string }{
		{"none", "", ""},
		{"text", "grüße", "grüße"},
		{"largest", strings.Repeat("x", 16<<10), strings.Repeat("x", 16<<10)},
		{"a byte more", strings.Repeat("x", 16<<10+1), ""},
		{"much more", strings.Repeat("x", 1<<20), ""},
		{"binary", "\xff\x00", ""},
	}
	addr := start(t, sample(), nil)
	both(t, func(t *testing.T, c *http.Client) {
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				_, body := do(t, c, request(t, http.MethodPost, "http://"+addr+"/", strings.NewReader(row.body)))
				got := decode[echo.Echo](t, body)
				if got.Body != row.want || got.Bytes != int64(len(row.body)) {
					t.Errorf("shows %d bytes of text and counts %d, want %d and %d", len(got.Body), got.Bytes, len(row.want), len(row.body))
				}
			})
		}
	})
}

func TestEchoOfAPodWithoutTenant(t *testing.T) {
	addr := start(t, assigned{}, nil)
	both(t, func(t *testing.T, c *http.Client) {
		resp, body := do(t, c, request(t, http.MethodGet, "http://"+addr+"/", http.NoBody))
		got := decode[echo.Echo](t, body)
		if got.PodName != "free-pod" || got.PodUID != "free-uid" || got.Tenant != "" || resp.Header[echo.HeaderTenant] != nil {
			t.Errorf("echo %+v, headers %v", got, resp.Header)
		}
	})
}

func TestStatusSetsHeaders(t *testing.T) {
	addr := start(t, sample(), nil)
	both(t, func(t *testing.T, c *http.Client) {
		resp, _ := do(t, c, request(t, http.MethodGet, "http://"+addr+"/status/503?header=x-one:1&header=X-Two:a:b", http.NoBody))
		got := []string{resp.Header.Get("X-One"), resp.Header.Get("X-Two")}
		if diff := cmp.Diff([]string{"1", "a:b"}, got); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
	})
}

func TestStatuses(t *testing.T) {
	rows := []struct {
		path string
		want int
		body string
	}{
		{"/status/200", 200, "status 200\n"},
		{"/status/204", 204, ""},
		{"/status/304", 304, ""},
		{"/status/404", 404, "status 404\n"},
		{"/status/599", 599, "status 599\n"},
		{"/status/600", 400, "status \"600\" is not a number from 200 to 599\n"},
		{"/status/101", 400, "status \"101\" is not a number from 200 to 599\n"},
		{"/status/", 400, "status \"\" is not a number from 200 to 599\n"},
		{"/status/x", 400, "status \"x\" is not a number from 200 to 599\n"},
		{"/421", 421, "the function itself says 421\n"},
		{"/crash", 403, "crashing is not allowed: start with --allow-crash\n"},
		{"/slow?for=soon", 400, "query parameter for=\"soon\" is not a duration such as 100ms\n"},
		{"/slow?for=-1s", 400, "query parameter for=\"-1s\" is not a duration such as 100ms\n"},
		{"/stream?chunks=x", 400, "query parameter chunks=\"x\" is not a number of at least 0\n"},
		{"/sse?events=-1", 400, "query parameter events=\"-1\" is not a number of at least 0\n"},
		{"/stream?every=x", 400, "query parameter every=\"x\" is not a duration such as 100ms\n"},
		{"/download?bytes=x", 400, "query parameter bytes=\"x\" is not a number of at least 0\n"},
	}
	addr := start(t, sample(), nil)
	both(t, func(t *testing.T, c *http.Client) {
		for _, row := range rows {
			t.Run(row.path, func(t *testing.T) {
				resp, body := do(t, c, request(t, http.MethodGet, "http://"+addr+row.path, http.NoBody))
				if resp.StatusCode != row.want || body != row.body {
					t.Errorf("got %d %q, want %d %q", resp.StatusCode, body, row.want, row.body)
				}
				if mark := resp.Header.Get(function.HeaderMisdirected); mark != "" {
					t.Errorf("%s: %q", function.HeaderMisdirected, mark)
				}
			})
		}
	})
}

func TestCrashWhereAllowed(t *testing.T) {
	crashed := make(chan struct{}, 1)
	addr := start(t, sample(), func() { crashed <- struct{}{} })
	both(t, func(t *testing.T, c *http.Client) {
		do(t, c, request(t, http.MethodPost, "http://"+addr+"/crash", http.NoBody))
		<-crashed
	})
}

func TestTrailersGoBothWays(t *testing.T) {
	addr := start(t, sample(), nil)
	both(t, func(t *testing.T, c *http.Client) {
		r := request(t, http.MethodPost, "http://"+addr+"/trailers", io.NopCloser(strings.NewReader("hello")))
		r.ContentLength = -1
		r.Trailer = http.Header{"X-Checksum": {"abc"}}
		resp, body := do(t, c, r)
		if diff := cmp.Diff(http.Header{"X-Checksum": {"abc"}}, decode[echo.Echo](t, body).Trailers); diff != "" {
			t.Errorf("request trailers (-want +got):\n%s", diff)
		}
		want := http.Header{"X-Checksum": {"abc"}, "X-Echo-Body-Sha256": {helloSHA256}}
		if diff := cmp.Diff(want, resp.Trailer); diff != "" {
			t.Errorf("response trailers (-want +got):\n%s", diff)
		}
		if resp.ContentLength != -1 {
			t.Errorf("content length %d: a proxy to HTTP/1.1 would have to drop the trailers", resp.ContentLength)
		}
	})
}
