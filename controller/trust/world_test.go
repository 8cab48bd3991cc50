package trust_test

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	skipperpb "skipper/proto"
	"skipper/proto/identity"
	"skipper/proto/identity/issue"

	"skipper/controller/trust"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// services answer as little as they can: what counts is who gets that far.
type services struct {
	skipperpb.UnimplementedControllerServiceServer
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	loadstatsv3.UnimplementedLoadReportingServiceServer
}

func (services) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	_, err := s.Recv()
	return err
}

// world is a server behind a gate, with all that the controllers serve.
type world struct {
	authority *issue.Authority
	addr      string
	server    *grpc.Server
	logs      *observer.ObservedLogs
	registry  *prometheus.Registry
}

func newWorld(t *testing.T) *world {
	t.Helper()
	core, logs := observer.New(zap.WarnLevel)
	w := &world{authority: newAuthority(t), logs: logs, registry: prometheus.NewRegistry()}
	own := w.certificate(t, issue.Request{Role: identity.Controller, Names: []string{"localhost"}})
	dir := t.TempDir()
	files := identity.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")}
	for path, content := range map[string][]byte{files.Cert: own.Cert, files.Key: own.Key, files.CA: w.authority.Cert} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	i, err := identity.Open(identity.Options{Files: files, Role: identity.Controller})
	if err != nil {
		t.Fatal(err)
	}
	w.server = grpc.NewServer(trust.New(i, zap.New(core), w.registry).ServerOptions()...)
	skipperpb.RegisterControllerServiceServer(w.server, services{})
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(w.server, services{})
	loadstatsv3.RegisterLoadReportingServiceServer(w.server, services{})
	h := health.NewServer()
	h.Shutdown() // a watch would stay open
	healthpb.RegisterHealthServer(w.server, h)
	reflection.Register(w.server)
	w.serve(t)
	return w
}

func (w *world) serve(t *testing.T) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = l.Addr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.server.Serve(l) // ends with Stop
	}()
	t.Cleanup(func() {
		w.server.Stop()
		<-done
	})
}

func newAuthority(t *testing.T) *issue.Authority {
	t.Helper()
	a, err := issue.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func certificate(t *testing.T, a *issue.Authority, r issue.Request) issue.Pair {
	t.Helper()
	p, err := a.Issue(r, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (w *world) certificate(t *testing.T, r issue.Request) issue.Pair {
	t.Helper()
	return certificate(t, w.authority, r)
}

// dial shows a certificate, or none if the pair is empty, and trusts anybody:
// it is the server that is tested.
func (w *world) dial(t *testing.T, p issue.Pair) *grpc.ClientConn {
	t.Helper()
	c := &tls.Config{InsecureSkipVerify: true}
	if p.Cert != nil {
		pair, err := tls.X509KeyPair(p.Cert, p.Key)
		if err != nil {
			t.Fatal(err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil } // whatever the server hints at
	}
	return w.connect(t, credentials.NewTLS(c))
}

func (w *world) dialPlaintext(t *testing.T) *grpc.ClientConn {
	t.Helper()
	return w.connect(t, insecure.NewCredentials())
}

func (w *world) connect(t *testing.T, c credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(w.addr, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// wantRefused waits for the count of a cause, and looks for its line.
func (w *world) wantRefused(t *testing.T, cause string) {
	t.Helper()
	w.untilCounted(t, "skipper_controller_tls_refused_total", cause, 1)
	lines := w.logs.FilterField(zap.String("cause", cause)).All()
	if len(lines) == 0 || !strings.HasPrefix(lines[0].ContextMap()["from"].(string), "127.0.0.1:") {
		t.Errorf("%s: lines %v", cause, w.logs.All())
	}
}

// untilCounted waits until the counters of a name with a label of this value
// are at least n together.
func (w *world) untilCounted(t *testing.T, name, label string, n float64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for w.count(t, name, label) < n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s{%s} never reached %v; logged %v", name, label, n, w.logs.All())
		}
	}
}

func (w *world) count(t *testing.T, name, label string) (sum float64) {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetValue() == label {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}
