package envoy_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skipper/envoy"
	"skipper/envoy/envoytest"
)

// raw sends bytes and returns all that comes back until the end.
func raw(t *testing.T, g *gateway, text string) string {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", g.addr("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// rudePod accepts connections, reads a little, says something and hangs up.
func rudePod(t *testing.T, says string) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			_, _ = io.WriteString(conn, says)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// told is what the contract promises of an answer that is not the function's.
type told struct {
	Status        int
	Reason, Retry []string
}

func tell(a answer) told {
	return told{a.status, a.header.Values(envoy.HeaderReason), a.header.Values("Retry-After")}
}

func TestEnvoysOwnAnswersHaveReasons(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	unused := net.JoinHostPort("127.0.0.1", itoa(envoytest.FreePorts(t, 1)[0]))
	check := func(function string, want told) {
		t.Helper()
		a := g.do(t, g.request(t, http.MethodGet, function, nil))
		if diff := cmp.Diff(want, tell(a)); diff != "" {
			t.Errorf("function %q (-want +got):\n%s\nbody %q", function, diff, a.body)
		}
		if !strings.HasSuffix(a.body, "\n") && !strings.HasPrefix(a.body, "nobody") {
			t.Errorf("function %q: body %q does not say what to do", function, a.body)
		}
		g.ended(t)
	}
	check("nobody", told{503, []string{"hold_timeout"}, []string{"7"}}) // extproc's own
	g.processor.route("unknown-host", http1Cluster, "192.0.2.1:80")
	check("unknown-host", told{503, []string{"hold_timeout"}, []string{"7"}}) // extproc's, in the second pass
	g.ended(t)
	g.processor.route("unknown-cluster", "skipper-http1-999", "192.0.2.1:80")
	check("unknown-cluster", told{503, []string{"no_instance"}, []string{"1"}})
	g.pod(t, "refused", http1Cluster, unused)
	check("refused", told{503, []string{"hold_timeout"}, []string{"7"}})
	g.ended(t)
	g.pod(t, "reset", http1Cluster, rudePod(t, ""))
	check("reset", told{503, []string{"instance_reset"}, []string{"1"}})
	g.pod(t, "garbage", http1Cluster, rudePod(t, "garbage\r\n\r\n"))
	check("garbage", told{502, []string{"instance_reset"}, nil})
}

func TestWithoutExtprocThereIsNoInstance(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	g.serverPod(t, "fn", http.HandlerFunc(headersPod))
	g.extproc.Stop()
	req := g.request(t, http.MethodGet, "fn", nil)
	req.Header.Set(envoy.HeaderCluster, http1Cluster)
	if diff := cmp.Diff(told{503, []string{"no_instance"}, []string{"1"}}, tell(g.do(t, req))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBadRequestHasReason(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	for name, text := range map[string]string{
		"not HTTP":          "nonsense\r\n\r\n",
		"no host":           "GET / HTTP/1.1\r\nconnection: close\r\n\r\n",
		"two lengths":       "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
		"headers too large": "GET / HTTP/1.1\r\nhost: a\r\nx-large: " + strings.Repeat("a", 70<<10) + "\r\n\r\n",
	} {
		out := raw(t, g, text)
		if !strings.HasPrefix(out, "HTTP/1.1 4") || !strings.Contains(out, "x-skipper-reason: bad_request\r\n") {
			t.Errorf("%s: answer is\n%s", name, out)
		}
	}
}

func TestHTTP10IsServed(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	g.serverPod(t, "fn", http.HandlerFunc(headersPod))
	out := raw(t, g, "GET /old HTTP/1.0\r\nhost: a\r\nx-skipper-function: fn\r\n\r\n")
	if !strings.HasPrefix(out, "HTTP/1.0 200 ") && !strings.HasPrefix(out, "HTTP/1.1 200 ") {
		t.Errorf("answer is\n%s", out)
	}
}

func TestIdleRequestEndsWithReason(t *testing.T) {
	t.Parallel()
	g := startGateway(t, func(c *envoy.Config) {
		c.HoldTimeout, c.MessageTimeout, c.StreamIdleTimeout = ms(50), ms(900), ms(1000)
	})
	release := make(chan struct{})
	g.serverPod(t, "fn", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(func() { close(release) })
	a := g.do(t, g.request(t, http.MethodGet, "fn", nil))
	if got := tell(a); got.Status != 504 && got.Status != 408 || !cmp.Equal(got.Reason, []string{"request_timeout"}) {
		t.Errorf("answer is %+v, body %q", got, a.body)
	}
	g.ended(t)
}

func TestFunctionsAnswerPassesUntouched(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	g.serverPod(t, "fn", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(envoy.HeaderReason, "no_instance")
		w.Header().Set("Server", "mine")
		w.Header().Set("Retry-After", "99")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "busy")
	}))
	a := g.do(t, g.request(t, http.MethodGet, "fn", nil))
	a.header.Del("Date")
	want := http.Header{"Server": {"mine"}, "Retry-After": {"99"}, "Content-Length": {"4"}, "Content-Type": {"text/plain; charset=utf-8"}}
	if diff := cmp.Diff(want, a.header); diff != "" || a.status != 503 || a.body != "busy" {
		t.Errorf("status %d, body %q, headers (-want +got):\n%s", a.status, a.body, diff)
	}
}
