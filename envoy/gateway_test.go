package envoy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"skipper/envoy"
	"skipper/envoy/envoytest"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(replicaVariable); addr != "" {
		if err := serveReplica(addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// gateway is a running Envoy with what it needs around it.
type gateway struct {
	*envoytest.Envoy
	cfg       envoy.Config
	plane     *controlPlane
	processor *processor
	extproc   *grpc.Server
	client    *http.Client
}

// testConfig is the default on free ports, with extproc and a controller here.
func testConfig(t testing.TB, controller string) envoy.Config {
	t.Helper()
	ports := envoytest.FreePorts(t, 2)
	addr := netip.MustParseAddrPort(controller)
	dir := envoytest.SocketDir(t)
	c := envoy.Default()
	c.HTTPPort, c.ReadyPort = ports[0], ports[1]
	c.Admin = filepath.Join(dir, "admin.sock")
	c.Extproc = filepath.Join(dir, "extproc.sock")
	c.ControllerHost, c.ControllerPort = addr.Addr().String(), addr.Port()
	c.AccessLog = envoy.AccessLogAll
	c.ControllerPlaintext = true
	return c
}

// startGateway runs Envoy with two empty clusters; change may alter its
// configuration first and may be nil; services are those of the controller
// beside xDS.
func startGateway(t testing.TB, change func(*envoy.Config), services ...func(*grpc.Server)) *gateway {
	t.Helper()
	g := &gateway{plane: startControlPlane(t, services...), client: &http.Client{Transport: &http.Transport{}}}
	g.plane.publishPods(t, http1Cluster)
	g.plane.publishPods(t, h2cCluster)
	g.cfg = testConfig(t, g.plane.addr)
	if change != nil {
		change(&g.cfg)
	}
	g.processor, g.extproc = startProcessor(t, g.cfg.Extproc)
	b, err := envoy.Bootstrap(g.cfg)
	if err != nil {
		t.Fatal(err)
	}
	g.Envoy = envoytest.Start(t, b)
	t.Cleanup(g.client.CloseIdleConnections)
	return g
}

// pod makes a function whose one pod listens at addr and waits until Envoy knows it.
func (g *gateway) pod(t testing.TB, function, cluster, addr string) {
	t.Helper()
	g.pods(t, cluster, addr)
	g.processor.route(function, cluster, addr)
}

// pods makes Envoy know these hosts of a cluster and no others.
func (g *gateway) pods(t testing.TB, cluster string, addrs ...string) {
	t.Helper()
	g.plane.publishPods(t, cluster, addrs...)
	envoytest.Eventually(t, fmt.Sprintf("Envoy knows %v", addrs), func() bool {
		_, text, err := g.Admin(t.Context(), http.MethodGet, "/clusters")
		for _, addr := range addrs {
			if !strings.Contains(text, cluster+"::"+addr+"::") {
				return false
			}
		}
		return err == nil
	})
}

// serverPod is a pod that answers with h.
func (g *gateway) serverPod(t testing.TB, function string, h http.Handler) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	g.pod(t, function, http1Cluster, s.Listener.Addr().String())
}

func (g *gateway) addr(host string) string {
	return net.JoinHostPort(host, strconv.Itoa(int(g.cfg.HTTPPort)))
}

func (g *gateway) request(t testing.TB, method, function string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+g.addr("127.0.0.1")+"/a/../b//c?q=1", body)
	if err != nil {
		t.Fatal(err)
	}
	if function != "" {
		req.Header.Set(envoy.HeaderFunction, function)
	}
	return req
}

// answer is a response read to its end.
type answer struct {
	status  int
	header  http.Header
	body    string
	trailer http.Header
}

func (g *gateway) do(t testing.TB, req *http.Request) answer {
	t.Helper()
	return g.doWith(t, g.client, req)
}

func (g *gateway) doWith(t testing.TB, c *http.Client, req *http.Request) answer {
	t.Helper()
	res, err := c.Do(req)
	if err != nil {
		t.Fatalf("ask gateway: %v", err)
	}
	defer res.Body.Close()
	var body bytes.Buffer
	if _, err := io.Copy(&body, res.Body); err != nil {
		t.Fatalf("read answer: %v", err)
	}
	return answer{status: res.StatusCode, header: res.Header, body: body.String(), trailer: res.Trailer}
}

// ended waits for the end of one ext_proc stream, which must be in order.
func (g *gateway) ended(t testing.TB) {
	t.Helper()
	envoytest.Eventually(t, "the ext_proc stream ends", func() bool { return len(g.processor.ends) > 0 })
	if err := <-g.processor.ends; !errors.Is(err, io.EOF) || strings.Contains(err.Error(), "context") {
		t.Errorf("ext_proc stream ended with %v, want EOF", err)
	}
}

func itoa(n uint16) string { return strconv.Itoa(int(n)) }

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }
