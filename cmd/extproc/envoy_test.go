package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	skipperpb "skipper/proto"
	"skipper/proto/fn"

	"skipper/envoy"
	"skipper/envoy/envoytest"
)

// gateway is the real Envoy with extproc beside it, pods behind it and a
// stand-in for the controller.
type gateway struct {
	*plane
	*sidecar
	envoy  *envoytest.Envoy
	client *http.Client
	url    string
}

// startPods starts n pods that say who they are and what they were sent; a
// request for /slow is answered when gate is closed.
func startPods(t testing.TB, n int, gate <-chan struct{}) []string {
	t.Helper()
	var addrs []string
	for range n {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/slow") {
				w.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(w).Flush() // the client reads what follows
				select {
				case <-gate:
				case <-r.Context().Done():
				}
			}
			fmt.Fprintf(w, "%s function=%q request=%d", r.Header.Get("X-Skipper-Instance"), r.Header.Get("X-Skipper-Function"), len(r.Header.Get("X-Skipper-Request")))
		}))
		t.Cleanup(s.Close)
		addrs = append(addrs, s.Listener.Addr().String())
	}
	return addrs
}

func startGateway(t testing.TB, pods []string, change func(*config)) *gateway {
	t.Helper()
	return startGatewayOn(t, newPlane(t, pods...), change)
}

func startGatewayOn(t testing.TB, p *plane, change func(*config)) *gateway {
	t.Helper()
	return startGatewayWith(t, p, change, func(*envoy.Config) {})
}

// startGatewayWith changes extproc's configuration, which may be nil, and Envoy's.
func startGatewayWith(t testing.TB, p *plane, change func(*config), alter func(*envoy.Config)) *gateway {
	t.Helper()
	g := &gateway{plane: p, sidecar: startSidecar(t, p, change)}
	ports := envoytest.FreePorts(t, 2)
	addr := netip.MustParseAddrPort(p.addr)
	c := envoy.Default()
	c.HTTPPort, c.ReadyPort = ports[0], ports[1]
	c.Admin = filepath.Join(envoytest.SocketDir(t), "admin.sock")
	c.Extproc = g.cfg.listen
	c.ControllerHost, c.ControllerPort = addr.Addr().String(), addr.Port()
	c.ControllerPlaintext = true
	c.HoldTimeout = g.cfg.holdTimeout
	c.AccessLog = envoy.AccessLogAll
	alter(&c)
	b, err := envoy.Bootstrap(c)
	if err != nil {
		t.Fatal(err)
	}
	g.envoy = envoytest.Start(t, b)
	g.url = fmt.Sprintf("http://127.0.0.1:%d", c.HTTPPort)
	g.client = &http.Client{Transport: &http.Transport{}}
	t.Cleanup(g.client.CloseIdleConnections)
	return g
}

type answer struct {
	status       int
	reason, body string
}

func (g *gateway) get(t testing.TB, path string, functions ...string) answer {
	t.Helper()
	res, err := g.client.Do(g.request(t.Context(), t, path, functions...))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header.Get("X-Skipper-Reason"), string(body)}
}

func (g *gateway) request(ctx context.Context, t testing.TB, path string, functions ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range functions {
		req.Header.Add("X-Skipper-Function", f)
	}
	return req
}

func text(f *skipperpb.Function) string { return string(fn.Marshal(f)) }

func TestEnvoyColdWarmAndWithoutController(t *testing.T) {
	pods := startPods(t, 2, nil)
	g := startGateway(t, pods, nil)
	want := answer{200, "", fmt.Sprintf("uid-%s function=%q request=%d", pods[0], "", 32)}
	for range 5 {
		if got := g.get(t, "/", text(function("t"))); got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
	if got := g.get(t, "/", text(function("other"))); !strings.HasPrefix(got.body, "uid-"+pods[1]) {
		t.Errorf("another tenant got %+v", got)
	}
	if n := see(g.plane, func() int { return g.asked }); n != 2 {
		t.Errorf("%d questions for two functions", n)
	}
	g.plane.stop()
	for range 5 {
		if got := g.get(t, "/", text(function("t"))); got != want {
			t.Errorf("without the controller: %+v, want %+v", got, want)
		}
	}
	g.restart(t)
	envoytest.Eventually(t, "nothing is in progress", func() bool { return g.inFlight() == 0 })
}

func TestEnvoyPassesRefusalsOn(t *testing.T) {
	g := startGateway(t, nil, nil)
	good := text(function("t"))
	tests := []struct {
		name      string
		path      string
		functions []string
		status    int
		reason    string
	}{
		{"health", "/healthz", nil, 200, ""},
		{"missing", "/", nil, 400, "header_missing"},
		{"repeated", "/", []string{good, good}, 400, "header_repeated"},
		{"malformed", "/", []string{"{"}, 400, "header_invalid"},
		{"too large", "/", []string{"{" + strings.Repeat(" ", 9<<10) + good[1:]}, 400, "header_too_large"},
		{"controller refuses", "/", []string{good}, 429, "limit_reached"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := g.get(t, tt.path, tt.functions...)
			if got.status != tt.status || got.reason != tt.reason || got.body == "" {
				t.Errorf("got %+v, want %d %s", got, tt.status, tt.reason)
			}
		})
	}
}

func TestEnvoyOneshotsAreReleasedHoweverTheyEnd(t *testing.T) {
	gate := make(chan struct{})
	defer close(gate)
	g := startGateway(t, startPods(t, 6, gate), nil)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if got := g.get(t, "/", text(oneshot())); got.status != 200 {
				t.Errorf("got %+v", got)
			}
		})
	}
	all.Wait()
	ctx, hangUp := context.WithCancel(t.Context())
	res, err := g.client.Do(g.request(ctx, t, "/slow", text(oneshot())))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	envoytest.Eventually(t, "the slow request is reported", func() bool { return g.inFlight() == 1 })
	if n := see(g.plane, func() int { return len(g.released) }); n != 4 {
		t.Errorf("%d released while one is in progress, want 4", n)
	}
	hangUp()
	envoytest.Eventually(t, "five are released", func() bool { return see(g.plane, func() int { return len(g.released) }) == 5 })
	envoytest.Eventually(t, "nothing is in progress", func() bool { return g.inFlight() == 0 })
}

func TestEnvoyKeepsRunningRequestsWhenExtprocStops(t *testing.T) {
	gate := make(chan struct{})
	g := startGateway(t, startPods(t, 1, gate), func(c *config) { c.shutdownTimeout = 100 * time.Millisecond })
	res, err := g.client.Do(g.request(t.Context(), t, "/slow", text(function("t"))))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	g.end(t)
	if !g.saidGoodbye() {
		t.Error("there was no goodbye")
	}
	if got := g.get(t, "/", text(function("t"))); got.status != 503 || got.reason == "" {
		t.Errorf("without extproc: %+v", got)
	}
	close(gate)
	body, err := io.ReadAll(res.Body)
	if err != nil || !strings.HasPrefix(string(body), "uid-") {
		t.Errorf("running request was cut: %q, %v", body, err)
	}
	runSidecar(t, g.cfg)
	envoytest.Eventually(t, "the next extproc is used", func() bool { return g.get(t, "/", text(function("t"))).reason != "no_instance" })
}

func TestEnvoyLosesNothingInAnOrderlyRestart(t *testing.T) {
	g := startGateway(t, startPods(t, 1, nil), nil)
	g.get(t, "/", text(function("t")))
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got := g.get(t, "/", text(function("t"))); got.status != 200 {
					t.Errorf("got %+v", got)
					return
				}
			}
		})
	}
	old := g.sidecar
	for range 3 {
		cfg := *old.cfg
		cfg.webPort = envoytest.FreePorts(t, 1)[0]
		next := runSidecar(t, &cfg)
		old.end(t)
		old = next
	}
	close(stop)
	load.Wait()
}

func TestEnvoyHoldsColdRequestsPastItsMessageTimeout(t *testing.T) {
	p := newPlane(t, startPods(t, 2, nil)...)
	p.gate = make(chan struct{})
	g := startGatewayOn(t, p, nil)
	start := time.Now()
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			if got := g.get(t, "/", text(function("t"))); got.status != 200 || !strings.HasPrefix(got.body, "uid-"+p.all[0]) {
				t.Errorf("got %+v", got)
			}
		})
	}
	envoytest.Eventually(t, "Envoy's message timeout has passed", func() bool { return time.Since(start) > envoy.Default().MessageTimeout+200*time.Millisecond })
	close(p.gate)
	all.Wait()
	if n := see(p, func() int { return p.asked }); n != 1 {
		t.Errorf("%d questions for 30 requests", n)
	}
}

func TestEnvoyClientThatLeavesEndsTheWait(t *testing.T) {
	p := newPlane(t)
	p.gate = make(chan struct{})
	g := startGatewayOn(t, p, nil)
	ctx, hangUp := context.WithCancel(t.Context())
	var left sync.WaitGroup
	left.Go(func() {
		res, err := g.client.Do(g.request(ctx, t, "/", text(oneshot())))
		if err == nil {
			_ = res.Body.Close()
			t.Errorf("got %d", res.StatusCode)
		}
	})
	envoytest.Eventually(t, "the request waits", func() bool { return strings.Contains(g.metrics(t), "skipper_extproc_hold_queue_requests 1") })
	hangUp()
	left.Wait()
	envoytest.Eventually(t, "the question is given up", func() bool { return see(p, func() int { return p.givenUp }) == 1 })
	envoytest.Eventually(t, "the place is free", func() bool { return strings.Contains(g.metrics(t), "skipper_extproc_hold_queue_requests 0") })
}

func TestEnvoyPassesTheHoldTimeoutOn(t *testing.T) {
	p := newPlane(t)
	p.gate = make(chan struct{})
	g := startGatewayOn(t, p, func(c *config) { c.holdTimeout = 1500 * time.Millisecond })
	got := g.get(t, "/", text(function("t")))
	if got.status != 503 || got.reason != "hold_timeout" || !strings.Contains(got.body, "no instance of prod/echo/t within 1.5s") {
		t.Errorf("got %+v", got)
	}
}
