//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"
)

// gateName is what a gate's certificate is for, wherever it listens.
const gateName = "example.com"

// gate is the only way of a stage's controllers to the API server, so that it can be cut, frozen and watched for them
// alone. It has no rights of its own: what passes carries the controllers' token. Safe for concurrent use.
type gate struct {
	server *httptest.Server
	proxy  *httputil.ReverseProxy

	mu     sync.Mutex
	state  passage
	opened chan struct{} // closed at the next change of state; guarded by mu
	trap   *trap
}

// passage is what becomes of what the controllers send to the API server.
type passage int

const (
	open    passage = iota
	refused         // connections are closed, and no new one is taken
	mute            // connections are taken, and nothing is answered
	frozen          // watches stay connected and say nothing; all else passes
)

// newGate listens at an address of the node, until the end of the test.
func newGate(t *testing.T, config *rest.Config, node string) *gate {
	t.Helper()
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(node, "0"))
	if err != nil {
		t.Fatal(err)
	}
	g, quiet := &gate{opened: make(chan struct{})}, zap.NewStdLog(zap.NewNop()) // cut connections are what it is for
	g.proxy = &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: quiet,
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: g.answered,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	g.server = httptest.NewUnstartedServer(g)
	_ = g.server.Listener.Close() // the loopback's
	g.server.Config.ErrorLog = quiet
	g.server.Listener, g.server.EnableHTTP2 = turnstile{l, g}, true
	g.server.StartTLS()
	t.Cleanup(func() {
		g.set(refused) // so that nothing is left that Close would wait for
		g.server.Close()
	})
	return g
}

// authority is the PEM certificate by which the gate is known.
func (g *gate) authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw})
}

// set changes what becomes of requests; those under way notice too.
func (g *gate) set(p passage) {
	g.mu.Lock()
	g.state = p
	close(g.opened)
	g.opened = make(chan struct{})
	g.mu.Unlock()
	if p == refused {
		g.server.CloseClientConnections()
	}
}

func (g *gate) now() (passage, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state, g.opened
}

// await returns when the gate is in none of the states, or false when the caller has left.
func (g *gate) await(ctx context.Context, none ...passage) bool {
	for {
		state, changed := g.now()
		in := false
		for _, n := range none {
			in = in || n == state
		}
		if !in {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// ServeHTTP passes a request on, unless the gate is shut.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.await(r.Context(), refused, mute) {
		panic(http.ErrAbortHandler)
	}
	caught := g.catches(r)
	if caught != nil && !caught.afterwards && !caught.hold(r) {
		panic(http.ErrAbortHandler)
	}
	g.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), trapKey{}, caught)))
}

// answered holds up what the API server says, where the gate or a trap wants that.
func (g *gate) answered(r *http.Response) error {
	ctx := r.Request.Context()
	if caught, _ := ctx.Value(trapKey{}).(*trap); caught != nil && caught.afterwards && !caught.hold(r.Request) {
		return errors.New("the caller has left")
	}
	if !g.await(ctx, refused, mute) {
		return errors.New("the caller has left")
	}
	shut := []passage{refused, mute}
	if r.Request.URL.Query().Get("watch") != "" {
		shut = append(shut, frozen)
	}
	r.Body = gatedBody{r.Body, func() bool { return g.await(ctx, shut...) }}
	return nil
}

// gatedBody shows what came when the gate lets it.
type gatedBody struct {
	io.ReadCloser
	pass func() bool
}

func (b gatedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if !b.pass() {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// turnstile takes no connection while the gate refuses.
type turnstile struct {
	net.Listener
	gate *gate
}

// Accept implements net.Listener.
func (l turnstile) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if state, _ := l.gate.now(); state != refused {
			return c, nil
		}
		_ = c.Close() // which is the refusal
	}
}

// trap holds up the first request that fits, and lets all others pass.
type trap struct {
	fits       func(r *http.Request, body []byte) bool
	afterwards bool        // it holds the answer up, when the API server has done what was asked
	from       chan string // gets the address of who was caught, once
	release    chan struct{}
}

type trapKey struct{}

// catch sets a trap in place of any other.
func (g *gate) catch(afterwards bool, fits func(r *http.Request, body []byte) bool) *trap {
	tr := &trap{fits: fits, afterwards: afterwards, from: make(chan string, 1), release: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trap = tr
	return tr
}

// catches returns the trap if it is this request that it is for.
func (g *gate) catches(r *http.Request) *trap {
	if r.Method == http.MethodGet {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	g.mu.Lock()
	defer g.mu.Unlock()
	tr := g.trap
	if tr == nil || !tr.fits(r, body) {
		return nil
	}
	g.trap = nil
	return tr
}

// hold tells who was caught and waits; false means that they have left meanwhile.
func (tr *trap) hold(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	tr.from <- host
	select {
	case <-tr.release:
		return true
	case <-r.Context().Done():
		return false
	}
}
