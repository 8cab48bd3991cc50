package soak

import (
	"context"
	"crypto/ed25519"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"skipper/function"
	"skipper/function/token"
)

// stand is a pod without a cluster, and a ledger that it tells.
type stand struct {
	t      *testing.T
	pod    *Pod
	key    ed25519.PrivateKey
	ledger *Ledger
	told   []string // violations; read when all requests have ended
}

func newStand(t *testing.T, image Image) *stand {
	t.Helper()
	others := goleak.IgnoreCurrent() // connections that tests on the cluster keep
	t.Cleanup(func() { goleak.VerifyNone(t, others) })
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &stand{t: t, key: key}
	s.ledger = NewLedger(func(v string) { s.told = append(s.told, v) }, func(string) []Tenure { return nil })
	s.pod, err = StartPod(PodConfig{
		Name: "pod", UID: "uid", Addr: freeAddr(t), Image: image, Keys: []ed25519.PublicKey{public},
		Assigned: func(string) {}, Visit: s.ledger.Visit,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.pod.Stop)
	return s
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// assign does what a controller does; it returns the status.
func (s *stand) assign(tenant string) int {
	s.t.Helper()
	text := `{"namespace":"n","deployment":"d","tenant":"` + tenant + `","scale":{"max_instances":1}}`
	signed, err := token.Sign(s.key, token.NewClaims(time.Now(), tenant, "pod", "uid", text))
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+s.pod.cfg.Addr+function.DefaultAssignPath, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set(function.HeaderToken, signed)
	req.Header.Set(function.HeaderFunction, text)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// ask is a tenant's request by way of a gateway that takes the pod for that
// instance, right or wrong.
func (s *stand) ask(tenant, instance string, paths ...string) []string {
	s.t.Helper()
	pod := &url.URL{Scheme: "http", Host: s.pod.cfg.Addr}
	transport := &http.Transport{DisableKeepAlives: true}
	front := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(pod)
		r.Out.Header.Set(function.HeaderInstance, instance)
		r.Out.Header.Set(function.HeaderRequest, "request")
	}}
	l, err := new(net.ListenConfig).Listen(s.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	server := &http.Server{Handler: front, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with Close
	}()
	defer func() {
		_ = server.Close()
		<-done
	}()
	c := &Client{
		Tenant: tenant, Gateways: []string{"http://" + l.Addr().String()}, HTTP: &http.Client{Transport: transport},
		Ledger: s.ledger, Rand: rand.New(rand.NewPCG(1, 1)),
	}
	var out []string
	for _, p := range paths {
		out = append(out, c.Ask(s.t.Context(), p))
	}
	return out
}

var everyPath = []string{pathQuick, pathSlow + "?ms=1", pathStream + "?ms=200", pathUpload, pathWebSocket}

// The harness must be able to fail: each way of asking a pod that is another's
// is a violation, unless the image refuses it.
func TestForeignPodIsAViolation(t *testing.T) {
	for _, path := range everyPath {
		t.Run(path, func(t *testing.T) {
			s := newStand(t, Plain)
			if got := s.assign("b"); got != http.StatusOK {
				t.Fatalf("assignment: %d", got)
			}
			s.ask("a", "other-uid", path)
			if len(s.told) != 1 {
				t.Errorf("told %q, want one violation", s.told)
			}
		})
	}
}

func TestGuardedPodRefusesWhatIsAnothers(t *testing.T) {
	s := newStand(t, Guarded)
	if got := s.assign("b"); got != http.StatusOK {
		t.Fatalf("assignment: %d", got)
	}
	want := slices.Repeat([]string{"421 "}, len(everyPath))
	if d := cmp.Diff(want, s.ask("a", "other-uid", everyPath...)); d != "" || len(s.told) > 0 {
		t.Errorf("outcomes (-want +got):\n%s\nviolations %q", d, s.told)
	}
}

func TestOwnPodIsNone(t *testing.T) {
	for _, image := range []Image{Guarded, Plain} {
		t.Run(string(image), func(t *testing.T) {
			s := newStand(t, image)
			if got := s.assign("a"); got != http.StatusOK {
				t.Fatalf("assignment: %d", got)
			}
			if got := s.assign("b"); got != http.StatusConflict {
				t.Errorf("second assignment: %d", got)
			}
			want := slices.Repeat([]string{OK}, len(everyPath))
			if d := cmp.Diff(want, s.ask("a", "uid", everyPath...)); d != "" || len(s.told) > 0 {
				t.Errorf("outcomes (-want +got):\n%s\nviolations %q", d, s.told)
			}
		})
	}
}

func TestNobodysPodIsAStray(t *testing.T) {
	s := newStand(t, Plain)
	got := s.ask("a", "uid", pathQuick)
	if n := s.ledger.visitsOf("plain image: stray"); got[0] != Strayed || n != 1 || len(s.told) > 0 {
		t.Errorf("outcome %q, %d strays, violations %q", got, n, s.told)
	}
}

// What is cut does not look complete, and the address can be had at once.
func TestStoppedPodCutsAndLeaves(t *testing.T) {
	s := newStand(t, Plain)
	s.assign("a")
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		for s.ledger.visitsOf("plain image: home") == 0 {
			if !pause(context.Background(), time.Millisecond) {
				return
			}
		}
		s.pod.Stop()
	}()
	got := s.ask("a", "uid", pathSlow+"?ms=60000")
	<-seen
	if got[0] == OK || len(s.told) > 0 {
		t.Errorf("outcome %q, violations %q", got, s.told)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", s.pod.cfg.Addr)
	if err != nil {
		t.Fatalf("the address is not free: %v", err)
	}
	_ = l.Close()
}

func (l *Ledger) visitsOf(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.visits[what]
}
