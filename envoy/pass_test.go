package envoy_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skipper/envoy"
	"skipper/envoy/envoytest"
)

// countingPod is a pod that counts the requests that it was sent.
type countingPod struct {
	addr     string
	requests atomic.Int64
}

func startPod(t testing.TB, h http.Handler) *countingPod {
	t.Helper()
	p := &countingPod{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.requests.Add(1)
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	p.addr = s.Listener.Addr().String()
	return p
}

// misdirected refuses every request as one for another pod.
func misdirected(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set(envoy.HeaderMisdirected, "1")
	w.WriteHeader(http.StatusMisdirectedRequest)
}

func refusingAddr(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", itoa(envoytest.FreePorts(t, 1)[0]))
}

// unknown is an address that no cluster holds.
const unknown = "192.0.2.9:80"

func TestNextPassTakesOver(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		first    func(testing.TB) string // where the first pass goes
		attempts string
	}{
		{"host unknown", func(testing.TB) string { return unknown }, "- 1"},
		{"connection refused", refusingAddr, "- 2"},
		{"misdirected", func(t testing.TB) string { return startPod(t, http.HandlerFunc(misdirected)).addr }, "- 2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, nil)
			first, pod := row.first(t), startPod(t, http.HandlerFunc(headersPod))
			hosts := []string{pod.addr}
			if first != unknown {
				hosts = append(hosts, first)
			}
			g.pods(t, http1Cluster, hosts...)
			g.processor.route("fn", http1Cluster, first, pod.addr)
			a := g.do(t, g.request(t, http.MethodPost, "fn", strings.NewReader("body")))
			if a.status != http.StatusOK || pod.requests.Load() != 1 {
				t.Fatalf("status %d, %d requests, body %q, headers %v", a.status, pod.requests.Load(), a.body, a.header)
			}
			if diff := cmp.Diff(row.attempts, g.processor.attempts()); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
			t.Log(a.body)
			g.ended(t)
			g.ended(t)
		})
	}
}

func TestSixDeadPodsAreSixPicks(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	var hosts []string
	for range 3 {
		hosts = append(hosts, refusingAddr(t), startPod(t, http.HandlerFunc(misdirected)).addr)
	}
	g.pods(t, http1Cluster, hosts...)
	g.processor.route("fn", http1Cluster, hosts...)
	a := g.do(t, g.request(t, http.MethodPost, "fn", strings.NewReader("body")))
	if diff := cmp.Diff(told{503, []string{"hold_timeout"}, []string{"7"}}, tell(a)); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s %v", diff, a.body, a.header)
	}
	if got := g.processor.attempts(); got != "- 2 2 2 2 2 2" {
		t.Errorf("attempts are %q", got)
	}
	for range 7 {
		g.ended(t)
	}
	_ = io.Discard
}
