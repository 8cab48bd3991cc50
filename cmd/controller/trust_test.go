package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/kubernetes/fake"

	"skipper/controller/config"
	skipperpb "skipper/proto"
	"skipper/proto/identity"
	"skipper/proto/identity/issue"
)

// tlsFiles issues a certificate of a role.
func tlsFiles(t *testing.T, a *issue.Authority, role identity.Role) identity.Files {
	t.Helper()
	pair, err := a.Issue(issue.Request{Role: role, Names: []string{"localhost"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := identity.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")}
	for path, content := range map[string][]byte{f.Cert: pair.Cert, f.Key: pair.Key, f.CA: a.Cert} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func clientCredentials(t *testing.T, a *issue.Authority, role identity.Role) credentials.TransportCredentials {
	t.Helper()
	i, err := identity.Open(identity.Options{Files: tlsFiles(t, a, role), Role: role})
	if err != nil {
		t.Fatal(err)
	}
	return i.Client(identity.Controller)
}

// peerCredentials are those of a controller with this configuration.
func peerCredentials(t *testing.T, cfg *config.Config) credentials.TransportCredentials {
	t.Helper()
	if cfg.InsecurePlaintext {
		return insecure.NewCredentials()
	}
	i, err := identity.Open(identity.Options{Files: cfg.TLS, Role: identity.Controller})
	if err != nil {
		t.Fatal(err)
	}
	return i.Client(identity.Controller)
}

// Replicas reach each other by address, each with a certificate of its own.
func TestReplicasForwardOverTLS(t *testing.T) {
	a, err := issue.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c := startCrowd(t, 3, 3, func(c *config.Config) { c.InsecurePlaintext, c.TLS = false, tlsFiles(t, a, identity.Controller) })
	for i, r := range c.replicas { // each asks for functions that others own
		if _, err := r.get(function(fmt.Sprint("t", i))); err != nil {
			t.Fatal(err)
		}
	}
	forwarded := false
	for _, r := range c.replicas {
		text := r.metrics()
		const routed = `skipper_controller_routed_calls_total{method="GetInstance",reason="`
		forwarded = forwarded || !strings.Contains(text, routed+`owner"} 0`)
		for _, lost := range []string{"next_owner", "in_place_of_owner", "nobody_else"} {
			if !strings.Contains(text, routed+lost+`"} 0`) {
				t.Errorf("a replica could not be reached: %s", lost)
			}
		}
	}
	if !forwarded {
		t.Error("nothing was forwarded")
	}
}

// metrics is what the controller tells Prometheus.
func (w *world) metrics() string {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.web+"/metrics", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

// With TLS, each role gets what it needs from the whole controller, and
// plaintext nothing.
func TestControllerBehindTLS(t *testing.T) {
	a, err := issue.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	w := startWorld(t, 1, func(c *config.Config) {
		c.InsecurePlaintext, c.TLS = false, tlsFiles(t, a, identity.Controller)
	})
	if _, err := w.client.GetInstance(t.Context(), &skipperpb.GetInstanceRequest{Function: function("t1")}); status.Code(err) != codes.Unavailable {
		t.Errorf("plaintext: %v, want no connection", err)
	}
	w.connect(w.conn.Target(), clientCredentials(t, a, identity.Envoy))
	if _, err := w.get(function("t1")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("envoy: %v, want refusal", err)
	}
	w.connect(w.conn.Target(), clientCredentials(t, a, identity.Extproc))
	if _, err := w.get(function("t1")); err != nil {
		t.Errorf("extproc: %v", err)
	}
	w.connect(w.conn.Target(), clientCredentials(t, a, identity.Operator))
	if _, err := w.client.GetClusterState(t.Context(), &skipperpb.GetClusterStateRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Errorf("operator: %v", err)
	}
	if len(w.posts) != 1 {
		t.Errorf("%d assignments, want that of extproc alone", len(w.posts))
	}
}

func TestCertificateOfAnotherRoleIsSaidAtTheStart(t *testing.T) {
	a, err := issue.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Host, cfg.Port, cfg.WebPort, cfg.PodIP = "127.0.0.1", 0, 0, "10.0.0.1"
	cfg.FunctionNamespaces, cfg.PasetoPrivateKey, cfg.TLS = []string{namespace}, privateKey(t), tlsFiles(t, a, identity.Extproc)
	api := fake.NewClientset()
	err = run(t.Context(), settings{Config: cfg}, clients{api, api.CoreV1(), nil, newAPICalls()}, listeners{}, zap.NewNop())
	if err == nil || !strings.Contains(err.Error(), "it is extproc, want controller") {
		t.Errorf("run = %v", err)
	}
}
