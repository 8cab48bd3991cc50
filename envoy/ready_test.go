package envoy_test

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"skipper/envoy"
	"skipper/envoy/envoytest"
)

func (g *gateway) readyPort(t *testing.T, method, path string) answer {
	t.Helper()
	url := "http://" + net.JoinHostPort("::1", itoa(g.cfg.ReadyPort)) + path
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return g.do(t, req)
}

func TestReadyPortAnswersProbesAndMetricsOnly(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	g.serverPod(t, "fn", http.HandlerFunc(headersPod))
	g.do(t, g.request(t, http.MethodGet, "fn", nil))
	if a := g.readyPort(t, http.MethodGet, "/ready"); a.status != 200 {
		t.Errorf("/ready answers %d", a.status)
	}
	metrics := g.readyPort(t, http.MethodGet, "/metrics")
	if metrics.status != 200 || !strings.Contains(metrics.body, "envoy_http_downstream_rq_total") {
		t.Errorf("/metrics answers %d", metrics.status)
	}
	if strings.Contains(metrics.body, http1Cluster) {
		t.Error("/metrics has statistics of a cluster of pods")
	}
	for _, path := range []string{"/", "/stats", "/clusters", "/config_dump", "/metrics/../quitquitquit", "/ready/../clusters"} {
		if a := g.readyPort(t, http.MethodGet, path); a.status != 404 {
			t.Errorf("%s answers %d", path, a.status)
		}
	}
	if a := g.readyPort(t, http.MethodPost, "/metrics"); a.status != 404 {
		t.Errorf("POST /metrics answers %d", a.status)
	}
}

// Clients may be those of the pod alone, while probes come from outside.
func TestOnlyHTTPAddressTakesRequests(t *testing.T) {
	t.Parallel()
	further := envoytest.FreePorts(t, 1)[0]
	g := startGateway(t, func(c *envoy.Config) {
		c.HTTPAddress, c.Listeners = "127.0.0.1", []envoy.Listener{{Name: "further", Port: further}}
	})
	for _, row := range []struct {
		host string
		port uint16
		open bool
	}{
		{"127.0.0.1", g.cfg.HTTPPort, true},
		{"127.0.0.2", g.cfg.HTTPPort, false},
		{"::1", g.cfg.HTTPPort, false},
		{"127.0.0.1", further, true},
		{"127.0.0.2", further, false},
		{"::1", further, false},
		{"127.0.0.2", g.cfg.ReadyPort, true},
		{"::1", g.cfg.ReadyPort, true},
	} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort(row.host, itoa(row.port)))
		if err == nil {
			_ = conn.Close()
		}
		if refused := errors.Is(err, syscall.ECONNREFUSED); refused == row.open || err != nil && !refused {
			t.Errorf("%s port %d: open should be %t, dial says %v", row.host, row.port, row.open, err)
		}
	}
}

func TestFailedHealthCheckTakesEnvoyOutOfService(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	if code, _, err := g.Admin(t.Context(), http.MethodPost, "/healthcheck/fail"); err != nil || code != 200 {
		t.Fatalf("admin answers %d, %v", code, err)
	}
	if a := g.readyPort(t, http.MethodGet, "/ready"); a.status != 503 {
		t.Errorf("/ready answers %d", a.status)
	}
}

func TestEnvoyStaysClosedUntilAControllerAnswered(t *testing.T) {
	t.Parallel()
	plane := startControlPlane(t)
	cfg := testConfig(t, net.JoinHostPort("127.0.0.1", itoa(envoytest.FreePorts(t, 1)[0])))
	closed := launch(t, cfg)
	open := testConfig(t, plane.addr)
	envoytest.Eventually(t, "the admin interface answers", func() bool {
		code, _, err := closed.Admin(t.Context(), http.MethodGet, "/ready")
		return err == nil && code == http.StatusServiceUnavailable
	})
	launch(t, open).WaitReady(t) // an empty world is an answer
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", itoa(cfg.HTTPPort)))
	if err == nil {
		_ = conn.Close()
		t.Error("Envoy takes requests without having heard from a controller")
	}
}

func launch(t *testing.T, c envoy.Config) *envoytest.Envoy {
	t.Helper()
	b, err := envoy.Bootstrap(c)
	if err != nil {
		t.Fatal(err)
	}
	return envoytest.Launch(t, b)
}
