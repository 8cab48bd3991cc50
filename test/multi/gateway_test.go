//go:build e2e

package multi_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"skipper/envoy"
	"skipper/envoy/envoytest"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/identity"
)

// gateway is a real Envoy, and a real extproc beside it if it was started.
type gateway struct {
	w     *world
	envoy *envoytest.Envoy
	url   string
	web   string // of extproc
	http  *http.Client
	requests
}

// startEnvoy runs Envoy with controllers at these addresses: what a name would
// resolve to.
func (w *world) startEnvoy(socket string, tr *trust, addrs ...string) *gateway {
	w.t.Helper()
	ports := envoytest.FreePorts(w.t, 2)
	first := netip.MustParseAddrPort(addrs[0])
	c := envoy.Default()
	c.NodeID, c.NodeCluster = "multi", "multi"
	c.HTTPPort, c.ReadyPort = ports[0], ports[1]
	c.Admin = filepath.Join(envoytest.SocketDir(w.t), "admin.sock")
	c.Extproc = socket
	c.ControllerHost, c.ControllerPort = first.Addr().String(), first.Port()
	c.ControllerPlaintext = tr == nil
	if tr != nil {
		c.TLSDir, c.SecretsDir = tr.dir(identity.Envoy), w.t.TempDir()
		writeSecrets(w.t, c)
	}
	b, err := envoy.Bootstrap(c)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, cluster := range b.GetStaticResources().GetClusters() {
		if cluster.GetName() == envoy.ControllerCluster {
			pin(cluster, addrs)
		}
	}
	return &gateway{
		w: w, envoy: envoytest.Start(w.t, b), url: fmt.Sprintf("http://127.0.0.1:%d/", c.HTTPPort),
		http: &http.Client{Timeout: patience, Transport: &http.Transport{}},
	}
}

func writeSecrets(t *testing.T, c envoy.Config) {
	t.Helper()
	files, err := envoy.Secrets(c)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(c.SecretsDir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// pin replaces the name of a cluster by addresses.
func pin(c *clusterv3.Cluster, addrs []string) {
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
	var all []*endpointv3.LbEndpoint
	for _, a := range addrs {
		ap := netip.MustParseAddrPort(a)
		all = append(all, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: ap.Addr().String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(ap.Port())},
			}}},
		}}})
	}
	c.LoadAssignment.Endpoints = []*endpointv3.LocalityLbEndpoints{{LbEndpoints: all}}
}

// startGateway runs Envoy and extproc, which reach the controllers at one address.
func (w *world) startGateway(tr *trust, controllers string) *gateway {
	w.t.Helper()
	socket := filepath.Join(envoytest.SocketDir(w.t), "extproc.sock")
	web := envoytest.FreePorts(w.t, 1)[0]
	host, port, err := net.SplitHostPort(controllers)
	if err != nil {
		w.t.Fatal(err)
	}
	args := []string{
		"--controller-service-host", host, "--controller-port", port, "--listen", socket, "--web-host", "127.0.0.1", "--web-port", fmt.Sprint(web),
		"--router-ip", "127.0.0.1", "--envoy-node-id", "multi",
	}
	if tr == nil {
		args = append(args, "--insecure-plaintext")
	} else {
		dir := tr.dir(identity.Extproc)
		args = append(args, "--tls-cert-file", filepath.Join(dir, "tls.crt"), "--tls-key-file", filepath.Join(dir, "tls.key"), "--tls-ca-file", filepath.Join(dir, "ca.crt"))
	}
	w.startExtproc(args)
	g := w.startEnvoy(socket, tr, controllers)
	g.web = fmt.Sprintf("http://127.0.0.1:%d", web)
	w.eventually("extproc is ready", func() (bool, string) { return httpOK(g.web + "/readyz") })
	return g
}

func (w *world) startExtproc(args []string) {
	w.t.Helper()
	log, err := os.Create(filepath.Join(w.t.TempDir(), "extproc.log"))
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(extprocBinary, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{}, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // says that it was killed
		w.keepLog(log)
	})
}

// get sends a request for the function and says what was wrong with the answer;
// empty: nothing.
func (g *gateway) get(f *skipperpb.Function) string {
	req, err := http.NewRequestWithContext(g.w.t.Context(), http.MethodGet, g.url, nil)
	if err != nil {
		return err.Error()
	}
	req.Header.Set("X-Skipper-Function", string(fn.Marshal(f)))
	r, err := g.http.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		return fmt.Sprint(r.Status, " ", r.Header.Get("X-Skipper-Reason"), " ", string(body), " ", err)
	}
	return ""
}

// relay is an address before several controllers, in turn, whose connections
// can be cut.
type relay struct {
	addr    string
	targets []string
	running sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{} // guarded by mu, as is opened
	opened int
}

func (w *world) startRelay(targets ...string) *relay {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	r := &relay{addr: l.Addr().String(), targets: targets, conns: map[net.Conn]struct{}{}}
	r.running.Go(func() { r.accept(l) })
	w.t.Cleanup(func() {
		_ = l.Close()
		r.cut()
		r.running.Wait()
	})
	return r
}

func (r *relay) accept(l net.Listener) {
	for turn := 0; ; turn++ {
		client, err := l.Accept()
		if err != nil {
			return
		}
		r.running.Go(func() { r.carry(client, turn) })
	}
}

// carry connects a client to the first controller from its turn on that takes it.
func (r *relay) carry(client net.Conn, turn int) {
	defer r.drop(client)
	for i := range r.targets {
		server, err := net.Dial("tcp", r.targets[(turn+i)%len(r.targets)])
		if err != nil {
			continue
		}
		defer r.drop(server)
		r.keep(client, server)
		var both sync.WaitGroup
		for from, to := range map[net.Conn]net.Conn{client: server, server: client} {
			both.Go(func() {
				_, _ = io.Copy(to, from) // it ends when either end closes
				_, _ = to.Close(), from.Close()
			})
		}
		both.Wait()
		return
	}
}

func (r *relay) keep(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened++
	for _, c := range conns {
		r.conns[c] = struct{}{}
	}
}

func (r *relay) drop(c net.Conn) {
	_ = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

// cut closes all connections and returns how many there were ever.
func (r *relay) cut() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.Close()
	}
	return r.opened
}

// count is how many connections there were ever.
func (r *relay) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.opened
}
