package envoy_test

import (
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"skipper/envoy"
	"skipper/envoy/envoytest"
	"skipper/proto/identity"
	"skipper/proto/identity/issue"
)

func newAuthority(t testing.TB) *issue.Authority {
	t.Helper()
	a, err := issue.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// volume is a folder like that of a mounted Secret: its files are links through
// a link that is moved to a new folder at each change.
type volume struct {
	dir string
	n   int
}

// put changes all files at once and returns the serial number of the certificate.
func (v *volume) put(t testing.TB, a *issue.Authority, role identity.Role, trusted ...*issue.Authority) string {
	t.Helper()
	pair, err := a.Issue(issue.Request{Role: role, Names: []string{"localhost"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var bundle []byte
	for _, t := range trusted {
		bundle = append(bundle, t.Cert...)
	}
	v.n++
	version := "..v" + strconv.Itoa(v.n)
	link := filepath.Join(v.dir, "..data")
	must(t, os.Mkdir(filepath.Join(v.dir, version), 0o700))
	for name, content := range map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key, "ca.crt": bundle} {
		must(t, os.WriteFile(filepath.Join(v.dir, version, name), content, 0o600))
		if v.n == 1 {
			must(t, os.Symlink(filepath.Join("..data", name), filepath.Join(v.dir, name)))
		}
	}
	must(t, os.Symlink(version, link+"_tmp"))
	must(t, os.Rename(link+"_tmp", link))
	c, err := tls.X509KeyPair(pair.Cert, pair.Key)
	must(t, err)
	return c.Leaf.SerialNumber.Text(16)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// withTLS gives a Config folders of its own with all that TLS needs.
func withTLS(t testing.TB, c envoy.Config) (envoy.Config, *volume, *issue.Authority) {
	t.Helper()
	a, v := newAuthority(t), &volume{dir: t.TempDir()}
	v.put(t, a, identity.Envoy, a)
	c.ControllerPlaintext, c.TLSDir, c.SecretsDir = false, v.dir, t.TempDir()
	files, err := envoy.Secrets(c)
	must(t, err)
	if len(files) == 0 {
		t.Fatal("no files for TLS")
	}
	for name, content := range files {
		must(t, os.WriteFile(filepath.Join(c.SecretsDir, name), content, 0o600))
	}
	return c, v, a
}

// shown records the serial numbers of the certificates that clients show.
type shown struct {
	credentials.TransportCredentials
	mu   sync.Mutex
	seen []string
}

func (s *shown) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := s.TransportCredentials.ServerHandshake(raw)
	if t, ok := info.(credentials.TLSInfo); ok && err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen = append(s.seen, t.State.PeerCertificates[0].SerialNumber.Text(16))
	}
	return conn, info, err
}

func (s *shown) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) == 0 {
		return ""
	}
	return s.seen[len(s.seen)-1]
}

// secured makes the control plane demand certificates, and ends its
// connections all the time, so that new ones are made.
func (c *controlPlane) secured(t testing.TB, v *volume, role identity.Role) *shown {
	t.Helper()
	i, err := identity.Open(identity.Options{Role: role, Every: time.Millisecond, Files: identity.Files{
		Cert: filepath.Join(v.dir, "tls.crt"), Key: filepath.Join(v.dir, "tls.key"), CA: filepath.Join(v.dir, "ca.crt"),
	}})
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = i.Run(t.Context()) // ends with the test
	}()
	t.Cleanup(func() { <-done })
	s := &shown{TransportCredentials: i.Server(nil)}
	short := keepalive.ServerParameters{MaxConnectionAge: 100 * time.Millisecond, MaxConnectionAgeGrace: 10 * time.Millisecond}
	server := grpc.NewServer(grpc.Creds(s), grpc.KeepaliveParams(short))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, c.xds)
	c.addr = serve(t, server, "tcp", "127.0.0.1:0")
	return s
}

// Renewed files and a replaced authority are used by the next connection,
// without a restart and without an Envoy that is not ready in between.
func TestEnvoyUsesChangedTLSFiles(t *testing.T) {
	t.Parallel()
	plane := startControlPlane(t)
	plane.publishPods(t, http1Cluster)
	c, own, ca := withTLS(t, testConfig(t, plane.addr))
	controllers := &volume{dir: t.TempDir()}
	controllers.put(t, ca, identity.Controller, ca)
	s := plane.secured(t, controllers, identity.Controller)
	c.ControllerPort = portOf(t, plane.addr)
	e := envoytest.Start(t, build(t, c))
	first := s.last()

	want := own.put(t, ca, identity.Envoy, ca)
	envoytest.Eventually(t, "Envoy shows its renewed certificate", func() bool { return s.last() == want })
	if first == want {
		t.Error("serial numbers do not differ")
	}

	next := newAuthority(t)
	controllers.put(t, ca, identity.Controller, ca, next) // first all trust both,
	both := own.put(t, ca, identity.Envoy, ca, next)
	envoytest.Eventually(t, "Envoy has the bundle", func() bool { return s.last() == both })
	controllers.put(t, next, identity.Controller, ca, next) // then certificates follow
	want = own.put(t, next, identity.Envoy, ca, next)
	envoytest.Eventually(t, "Envoy shows a certificate of the next authority", func() bool { return s.last() == want })
	if status, _, err := e.Admin(t.Context(), http.MethodGet, "/ready"); err != nil || status != http.StatusOK {
		t.Errorf("ready: %d, %v", status, err)
	}
}

// Envoy takes its world from nobody but controllers.
func TestEnvoyRefusesAnotherRole(t *testing.T) {
	t.Parallel()
	plane := startControlPlane(t)
	c, _, ca := withTLS(t, testConfig(t, plane.addr))
	impostor := &volume{dir: t.TempDir()}
	impostor.put(t, ca, identity.Extproc, ca)
	s := plane.secured(t, impostor, identity.Extproc)
	c.ControllerPort = portOf(t, plane.addr)
	e := envoytest.Launch(t, build(t, c))
	refused := regexp.MustCompile(`ssl\.fail_verify_san: [1-9]`)
	envoytest.Eventually(t, "Envoy refuses the certificate", func() bool {
		_, text, err := e.Admin(t.Context(), http.MethodGet, "/stats?filter=skipper-controllers.*fail_verify_san")
		return err == nil && refused.MatchString(text)
	})
	if status, _, err := e.Admin(t.Context(), http.MethodGet, "/ready"); err == nil && status == http.StatusOK {
		t.Error("Envoy is ready without a controller")
	}
	if got := s.last(); got != "" {
		t.Errorf("connection came about, with certificate %s", got)
	}
}

func TestPlaintextNeedsNoSecrets(t *testing.T) {
	t.Parallel()
	c := envoy.Default()
	c.ControllerPlaintext, c.TLSDir, c.SecretsDir = true, "", ""
	if files, err := envoy.Secrets(c); err != nil || files != nil {
		t.Errorf("%d files, %v", len(files), err)
	}
	envoytest.Validate(t, build(t, c))
}

func portOf(t testing.TB, addr string) uint16 {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	must(t, err)
	n, err := strconv.ParseUint(port, 10, 16)
	must(t, err)
	return uint16(n)
}
