package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"skipper/cmd/echo/internal/echo"
	"skipper/function"
	"skipper/function/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testPod = "echo-1"
	testUID = "uid-1"
)

func signingKey() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
}

// testConfig believes signingKey and stops without delay.
func testConfig(t *testing.T) *config {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(signingKey().Public())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "public.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := defaults()
	cfg.podName, cfg.podUID, cfg.publicKeyFiles = testPod, testUID, []string{path}
	cfg.server.StopDelay = 0
	return cfg
}

// start runs the function on loopback and returns its address, and what ends it in good order.
func start(t *testing.T, cfg *config) (addr string, stop func() error) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- serve(ctx, ln, cfg, zap.NewNop(), nil); close(done) }()
	stop = func() error { cancel(); return <-done }
	t.Cleanup(func() { cancel(); <-done })
	return ln.Addr().String(), stop
}

func client(t *testing.T, h2c bool) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!h2c)
	protocols.SetUnencryptedHTTP2(h2c)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// call sends a request with headers in pairs and returns status, misdirected mark, and body.
func call(t *testing.T, c *http.Client, method, url string, headers ...string) (answer string, body []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", resp.Header.Get(function.HeaderMisdirected)), body
}

func assign(t *testing.T, c *http.Client, addr, tenant string) string {
	t.Helper()
	text := fmt.Sprintf(`{"namespace":"prod","deployment":"echo","tenant":%q,"metadata":"v2 grüße","scale":{"max_instances":1}}`, tenant)
	signed, err := token.Sign(signingKey(), token.NewClaims(time.Now(), tenant, testPod, testUID, text))
	if err != nil {
		t.Fatal(err)
	}
	answer, _ := call(t, c, http.MethodPost, "http://"+addr+function.DefaultAssignPath,
		function.HeaderToken, signed, function.HeaderFunction, text)
	return answer
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// A pod's life as Skipper sees it.
func TestLifeOfAPod(t *testing.T) {
	for name, h2c := range map[string]bool{"http1": false, "h2c": true} {
		t.Run(name, func(t *testing.T) {
			addr, stop := start(t, testConfig(t))
			c, url := client(t, h2c), "http://"+addr
			get := func(path string, headers ...string) string {
				answer, _ := call(t, c, http.MethodGet, url+path, headers...)
				return answer
			}
			expect(t, "probe of a free pod", get("/healthz"), "200 ")
			expect(t, "request to a free pod", get("/", function.HeaderInstance, testUID), "421 1")
			expect(t, "assignment", assign(t, c, addr, "a"), "200 ")
			expect(t, "the same once more", assign(t, c, addr, "a"), "200 ")
			expect(t, "another tenant", assign(t, c, addr, "b"), "409 ")
			expect(t, "request for another pod", get("/", function.HeaderInstance, "uid-2"), "421 1")
			expect(t, "request past Skipper", get("/"), "421 1")
			expect(t, "the function's own 421", get("/421", function.HeaderInstance, testUID), "421 ")
			answer, body := call(t, c, http.MethodGet, url+"/x", function.HeaderInstance, testUID)
			expect(t, "request", answer, "200 ")
			var told echo.Echo
			if err := json.Unmarshal(body, &told); err != nil {
				t.Fatal(err)
			}
			expect(t, "echo", told.Tenant+" "+told.Metadata+" "+told.PodName+" "+told.PodUID+" "+told.Path, "a v2 grüße echo-1 uid-1 /x")
			if err := stop(); err != nil {
				t.Errorf("stop: %v", err)
			}
		})
	}
}

func TestGRPCPassesOnlyForThisPod(t *testing.T) {
	addr, _ := start(t, testConfig(t))
	expect(t, "assignment", assign(t, client(t, true), addr, "a"), "200 ")
	answer, _ := call(t, client(t, true), http.MethodPost, "http://"+addr+"/grpc.testing.TestService/EmptyCall",
		"Content-Type", "application/grpc", function.HeaderInstance, "uid-2")
	expect(t, "call for another pod", answer, "421 1")
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	calls := testgrpc.NewTestServiceClient(conn)
	ours := metadata.AppendToOutgoingContext(t.Context(), function.HeaderInstance, testUID)
	if _, err := calls.EmptyCall(ours, &testgrpc.Empty{}); err != nil {
		t.Errorf("call for this pod: %v", err)
	}
	if _, err := calls.EmptyCall(t.Context(), &testgrpc.Empty{}); err == nil {
		t.Error("call past Skipper was answered")
	}
}

func TestWebSocketPassesTheGuardAndOutlivesTheOrderToStop(t *testing.T) {
	addr, stop := start(t, testConfig(t))
	expect(t, "assignment", assign(t, client(t, false), addr, "a"), "200 ")
	opts := &websocket.DialOptions{HTTPHeader: http.Header{function.HeaderInstance: {testUID}}}
	conn, _, err := websocket.Dial(t.Context(), "ws://"+addr+"/ws", opts)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	for i := range 5 {
		want := fmt.Sprint("message ", i)
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := conn.Read(t.Context()); err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if err := conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestModes(t *testing.T) {
	rows := []struct {
		name   string
		change config
		// keep says whether the public key stays configured.
		keep                    bool
		assigned, foreign, none string
	}{
		{"plain", config{}, true, "200 ", "421 1", "421 1"},
		{"refuse assignment", config{refuseAssignment: true}, true, "500 ", "421 1", "421 1"},
		{"refuse this tenant", config{refuseTenants: []string{"b", "a"}}, true, "500 ", "421 1", "421 1"},
		{"refuse another tenant", config{refuseTenants: []string{"b"}}, true, "200 ", "421 1", "421 1"},
		{"short delay", config{assignDelay: time.Millisecond}, true, "200 ", "421 1", "421 1"},
		{"ignore instance", config{ignoreInstance: true}, true, "200 ", "200 ", "200 "},
		{"allow direct", config{allowDirect: true}, true, "200 ", "421 1", "200 "},
		{"no key", config{}, false, "401 ", "421 1", "421 1"},
		{"any token", config{acceptAnyToken: true}, false, "200 ", "421 1", "421 1"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			cfg := testConfig(t)
			if !row.keep {
				cfg.publicKeyFiles = nil
			}
			cfg.refuseTenants = row.change.refuseTenants
			cfg.refuseAssignment, cfg.assignDelay = row.change.refuseAssignment, row.change.assignDelay
			cfg.ignoreInstance, cfg.allowDirect, cfg.acceptAnyToken = row.change.ignoreInstance, row.change.allowDirect, row.change.acceptAnyToken
			addr, _ := start(t, cfg)
			c := client(t, false)
			got := []string{assign(t, c, addr, "a")}
			foreign, _ := call(t, c, http.MethodGet, "http://"+addr+"/", function.HeaderInstance, "uid-2")
			none, _ := call(t, c, http.MethodGet, "http://"+addr+"/")
			if diff := cmp.Diff([]string{row.assigned, row.foreign, row.none}, append(got, foreign, none)); diff != "" {
				t.Errorf("assignment, foreign request, request without header (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAssignDelayEndsWithItsCaller(t *testing.T) {
	cfg := &config{assignDelay: time.Hour}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := cfg.onAssign(ctx, function.Assignment{}); err == nil {
		t.Error("no error")
	}
}

func TestCommandRunsAndStops(t *testing.T) {
	t.Setenv("SKIPPER_ECHO_STOP_DELAY", "0s")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for args, ok := range map[string]bool{
		"--listen=127.0.0.1:0": true, "--listen=nonsense": false, "--grace=-1s": false,
		"--public-key-file=testdata/none.pem": false, "--assign-path=x": false, "extra": false,
	} {
		cmd := newCommand(nil)
		cmd.SetArgs([]string{"--log-level=error", args})
		if err := cmd.ExecuteContext(ctx); (err == nil) != ok {
			t.Errorf("%s: %v, want ok %t", args, err, ok)
		}
	}
}
