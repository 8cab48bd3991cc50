package inflight

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	"skipper/controller/pool"
	"skipper/envoy/envoytest"
	"skipper/xds"
	"skipper/xds/loads"
)

// bootstrap is an Envoy that sends everything to one pod and reports its load.
const bootstrap = `
admin: {address: {pipe: {path: %q}}}
cluster_manager:
  load_stats_config: {api_type: GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: controllers}}]}
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: %d}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: test
          route_config: {virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: %s, timeout: 0s}}]}]}
          http_filters: [{name: envoy.filters.http.router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
  clusters:
  - name: %[3]s
    load_assignment: {cluster_name: pods, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}]}]}
  - name: controllers
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment: {cluster_name: controllers, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}]}]}
`

// counted counts the reports on their way to the store.
type counted struct {
	*Store
	mu      sync.Mutex
	reports int       // guarded by mu
	newest  time.Time // guarded by mu
}

func (c *counted) Reported(s loads.Stream, received time.Time, busy []loads.Busy) {
	c.Store.Reported(s, received, busy)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports++
	c.newest = received
}

func (c *counted) seen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reports
}

// gateway is a real Envoy in front of a pod that holds requests.
type gateway struct {
	*world
	*envoytest.Envoy
	sink    *counted
	pod     pool.Pod
	url     string
	entered chan struct{}
	release chan struct{}
}

func (g *gateway) ServeHTTP(http.ResponseWriter, *http.Request) {
	g.entered <- struct{}{}
	<-g.release
}

func startGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{world: newWorld(t), entered: make(chan struct{}, 100), release: make(chan struct{})}
	s := httptest.NewServer(g)
	t.Cleanup(s.Close)
	g.pod = instance("p", "127.0.0.1")
	g.pod.Port = uint16(s.Listener.Addr().(*net.TCPAddr).Port)
	g.add(g.pod)
	port := envoytest.FreePorts(t, 1)[0]
	g.url = "http://127.0.0.1:" + strconv.Itoa(int(port))
	text := fmt.Sprintf(bootstrap, filepath.Join(envoytest.SocketDir(t), "admin.sock"), port,
		xds.ShardClusterOf(g.pod.Protocol, g.pod.UID, shards), g.pod.Port, g.serveLoads(t))
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var b bootstrapv3.Bootstrap
	if err := protojson.Unmarshal(asJSON, &b); err != nil {
		t.Fatal(err)
	}
	g.Envoy = envoytest.Start(t, &b)
	return g
}

func (g *gateway) serveLoads(t *testing.T) int {
	t.Helper()
	g.sink = &counted{Store: g.store}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, lrs := grpc.NewServer(), loads.New(loads.Options{Sink: g.sink, Shards: shards})
	lrs.Register(server)
	lrs.Open()
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		lrs.Close()
		server.Stop()
		<-done
	})
	return l.Addr().(*net.TCPAddr).Port
}

// ask sends a request and waits until the pod has it; the channel is closed
// when it has ended.
func (g *gateway) ask() <-chan struct{} {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, g.url, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		if res, err := client.Do(req); err == nil {
			_ = res.Body.Close()
		}
	}()
	<-g.entered
	return done
}

func (g *gateway) inFlight() int {
	n, _, _ := g.store.InFlightSince(g.pod.UID, time.Now())
	return n
}

// reports waits for n more reports.
func (g *gateway) reports(n int) {
	g.t.Helper()
	want := g.sink.seen() + n
	g.until(fmt.Sprint(n, " more reports"), func() bool { return g.sink.seen() >= want })
}

func TestRealEnvoyReportsWhatIsInProgress(t *testing.T) {
	g := startGateway(t)
	g.reports(1)
	if n := g.inFlight(); n != 0 {
		t.Fatalf("%d in flight before any request", n)
	}
	first, second := g.ask(), g.ask()
	g.reports(2) // one may have been under way
	if n := g.inFlight(); n != 2 {
		t.Errorf("%d in flight after two reports, want 2", n)
	}
	// Nothing begins or ends meanwhile: Envoy goes on to report.
	for range 3 {
		g.reports(1)
		if n := g.inFlight(); n != 2 {
			t.Errorf("%d in flight while two requests run", n)
		}
	}
	since := time.Now()
	g.release <- struct{}{}
	g.release <- struct{}{}
	<-first
	<-second
	g.until("known to be empty by later reports", func() bool {
		n, known, asOf := g.store.InFlightSince(g.pod.UID, since)
		return n == 0 && known && asOf.After(since)
	})
}

func TestLastWordOfAKilledEnvoyHoldsUntilItExpires(t *testing.T) {
	g := startGateway(t)
	done := g.ask()
	g.reports(2)
	if err := syscall.Kill(g.Pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-done
	g.until("the stream has ended", func() bool {
		share := g.store.Share("10.0.0.1", time.Now())
		return len(share) == 1 && !share[0].GetEnvoys()[0].GetConnected()
	})
	g.release <- struct{}{}
	last := g.sink.newest
	g.want("lost", g.pod.UID, last, last.Add(expiry), 1, false)
	g.want("expired", g.pod.UID, last, last.Add(expiry+1), 0, true)
}
