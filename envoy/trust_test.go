package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skipper/envoy"
	"skipper/envoy/envoytest"
)

// thirdPass makes function "fn" reach h in the third pass, and function
// "direct" at once.
func (g *gateway) thirdPass(t testing.TB, h http.Handler) {
	t.Helper()
	pod, wrong := startPod(t, h), misdirectingHost(t)
	g.pods(t, http1Cluster, pod.addr, wrong)
	g.processor.route("direct", http1Cluster, pod.addr)
	g.processor.route("fn", http1Cluster, unknownHost(t), wrong, pod.addr)
}

// A pass after the first changes nothing of what the pod sees.
func TestHeadersAreTheSameInEveryPass(t *testing.T) {
	t.Parallel()
	for name, hops := range map[string]uint32{"edge": 0, "behind a proxy": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, func(c *envoy.Config) { c.TrustedHops = hops })
			g.thirdPass(t, http.HandlerFunc(headersPod))
			for client, c := range map[string]*http.Client{"HTTP/1": g.client, "HTTP/2": http2Client(t)} {
				saw := map[string]http.Header{}
				for _, function := range []string{"direct", "fn"} {
					h := podSaw(t, g.doWith(t, c, suspiciousRequest(t, g, function)))
					h["Forwarded"] = []string{maskedPeer.ReplaceAllString(strings.Join(h["Forwarded"], " "), "peer")}
					h.Del("X-Skipper-Request")
					saw[function] = h
				}
				if diff := cmp.Diff(saw["direct"], saw["fn"]); diff != "" {
					t.Errorf("%s: pod saw (-first pass +third pass):\n%s", client, diff)
				}
			}
		})
	}
}

// suspiciousRequest says all that a client must not be believed, and has as
// many headers as Envoy takes.
func suspiciousRequest(t testing.TB, g *gateway, function string) *http.Request {
	t.Helper()
	req := g.request(t, http.MethodPost, function, strings.NewReader("body"))
	req.Host = "shop.example:8443"
	for k, v := range spoofed() {
		req.Header[k] = v
	}
	// Under one name: those that differ in case only are sent in any order.
	req.Header["x-forwarded-proto"] = []string{"https", "spoofed"}
	req.Header.Set("X-Request-Id", "mine")
	for i := range 60 {
		req.Header.Set("X-Many-"+itoa(uint16(i)), strings.Repeat("v", 900))
	}
	return req
}

// maskedPeer is the client's port, which differs from request to request.
var maskedPeer = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// What a pod says of itself in our words goes, in every pass.
func TestPodCannotSpeakAsSkipper(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	g.thirdPass(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Skipper-Reason")
		w.Header().Set(envoy.HeaderReason, "no_instance")
		w.Header().Set("X-Skipper-From-Pass", "no_instance")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "busy")
	}))
	for _, function := range []string{"direct", "fn"} {
		a := g.do(t, g.request(t, http.MethodGet, function, nil))
		if a.status != 503 || a.body != "busy" {
			t.Errorf("%s: status %d, body %q", function, a.status, a.body)
		}
		for name := range a.header {
			if strings.HasPrefix(name, "X-Skipper-") || name == "Retry-After" {
				t.Errorf("%s: answer has %s: %v", function, name, a.header[name])
			}
		}
	}
}

// Nobody reaches the second pass by naming it.
func TestClientCannotEnterALaterPass(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	g.thirdPass(t, http.HandlerFunc(headersPod))
	g.do(t, g.request(t, http.MethodGet, "fn", nil)) // leaves picks under a known id
	before := len(g.processor.requests())
	req := g.request(t, http.MethodGet, "", nil)
	req.Header.Set(envoy.HeaderCluster, envoy.SecondPassCluster)
	req.Header.Set(envoy.HeaderRequest, "request-of-fn")
	req.Header.Set("X-Envoy-Attempt-Count", "2")
	g.do(t, req)
	want := []map[string]string{{":method": "GET", ":path": "/a/../b//c?q=1"}}
	if diff := cmp.Diff(want, g.processor.requests()[before:]); diff != "" {
		t.Errorf("extproc saw (-want +got):\n%s", diff)
	}
	g.extproc.Stop()
	if diff := cmp.Diff(told{503, []string{"no_instance"}, []string{"1"}}, tell(g.do(t, req))); diff != "" {
		t.Errorf("without extproc (-want +got):\n%s", diff)
	}
}

// An answer that Envoy or extproc gave in a later pass keeps its reason.
func TestReasonsOfLaterPasses(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	reset := rudePod(t, "")
	g.pods(t, http1Cluster, reset)
	g.processor.route("reset", http1Cluster, unknownHost(t), unknownHost(t), reset)
	g.processor.route("nobody", http1Cluster, unknownHost(t), unknownHost(t))
	g.processor.route("no cluster", "skipper-http1-999", unknownHost(t))
	for function, want := range map[string]told{
		"reset":      {503, []string{"instance_reset"}, []string{"1"}},
		"nobody":     {503, []string{"hold_timeout"}, []string{"7"}},
		"no cluster": {503, []string{"no_instance"}, []string{"1"}},
	} {
		if diff := cmp.Diff(want, tell(g.do(t, g.request(t, http.MethodGet, function, nil)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", function, diff)
		}
	}
}

func TestLaterPassMayBeHeld(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	pod := startPod(t, http.HandlerFunc(lengthPod))
	g.pods(t, http1Cluster, pod.addr)
	g.processor.route("held-later", http1Cluster, unknownHost(t), pod.addr)
	got := make(chan answer, 1)
	req := g.request(t, http.MethodPut, "held-later", io.LimitReader(zeros{}, upload))
	go func() { got <- g.do(t, req) }()
	envoytest.Eventually(t, "the second pass is held", func() bool { return g.processor.holding.Load() == 1 })
	g.outlastMessageTimeout(t)
	g.outlastMessageTimeout(t)
	close(g.processor.stuck)
	close(g.processor.hold)
	if a := <-got; a.status != http.StatusOK || a.body != "5242880" {
		t.Errorf("held request ended with %+v", a)
	}
}

// Passes of HTTP/2 requests share a connection, and must not wait for one
// another's share of its window.
func TestHeldUploadsDoNotBlockOneAnother(t *testing.T) {
	t.Parallel()
	const uploads = 48
	g := startGateway(t, nil)
	pod := startPod(t, http.HandlerFunc(lengthPod))
	g.pods(t, http1Cluster, pod.addr)
	var all sync.WaitGroup
	c := http2Client(t)
	for i := range uploads {
		function := fmt.Sprintf("held-later-%d", i)
		g.processor.route(function, http1Cluster, unknownHost(t), unknownHost(t), pod.addr)
		req := g.request(t, http.MethodPut, function, io.LimitReader(zeros{}, upload))
		all.Go(func() {
			if a := g.doWith(t, c, req); a.body != "5242880" {
				t.Errorf("upload ended with %+v", a)
			}
		})
	}
	envoytest.Eventually(t, "all second passes are held", func() bool { return g.processor.holding.Load() == uploads })
	envoytest.Eventually(t, "they are full", func() bool {
		_, text, err := g.Admin(t.Context(), http.MethodGet, "/stats?filter=http.second_pass.downstream_cx_rx_bytes_total")
		n, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(text, "http.second_pass.downstream_cx_rx_bytes_total:")))
		return err == nil && n > uploads*300_000
	})
	close(g.processor.hold)
	all.Wait()
}

// A client that leaves, or a pod that cuts, in a later pass ends all streams.
func TestStreamsOfAllPassesEndInOrder(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	arrived, begun := make(chan struct{}), make(chan struct{})
	g.thirdPass(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			_, _ = io.WriteString(w, "some")
			_ = http.NewResponseController(w).Flush()
			<-begun
			panic(http.ErrAbortHandler)
		}
		close(arrived)
		<-r.Context().Done()
	}))
	res, err := g.client.Do(g.request(t, http.MethodDelete, "fn", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if len(g.processor.ends) > 0 {
		t.Error("a stream ended before the answer")
	}
	close(begun)
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("an answer that was cut came as if whole")
	}
	for range 3 {
		g.ended(t)
	}
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-arrived
		leave()
	}()
	if res, err := g.client.Do(g.request(t, http.MethodGet, "fn", nil).WithContext(ctx)); !errors.Is(err, context.Canceled) {
		_ = res.Body.Close()
		t.Fatalf("request ended with %v", err)
	}
	for range 3 {
		g.ended(t)
	}
}
