package soak

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"skipper/function"
)

// Image is what a pod runs.
type Image string

// The images.
const (
	// Guarded refuses, by the function package, what is meant for another pod.
	Guarded Image = "guarded"
	// Plain takes assignments, and serves whatever comes.
	Plain Image = "plain"
)

// Headers between clients and pods of a run.
const (
	// HeaderAsked is, in a request, the tenant that asks.
	HeaderAsked = "X-Soak-Asked"
	// HeaderTenant and HeaderUID are, in an answer, whose pod it was.
	HeaderTenant = "X-Soak-Tenant"
	HeaderUID    = "X-Soak-Uid"
	// HeaderRequest is, in an answer, extproc's name of the request.
	HeaderRequest = "X-Soak-Request"
)

// Paths of a pod. Durations are in milliseconds, in query parameter "ms".
const (
	pathQuick     = "/quick"     // answers at once
	pathSlow      = "/slow"      // answers after the duration
	pathStream    = "/stream"    // a line each 100 ms until the duration is over
	pathUpload    = "/upload"    // answers when all of the body has come
	pathWebSocket = "/websocket" // answers each message
)

// PodConfig describes a pod.
type PodConfig struct {
	Name, UID string
	// Addr is ip:port to listen on.
	Addr  string
	Image Image
	// Keys verify assignments.
	Keys []ed25519.PublicKey
	// Assigned is told of the assignment, before it is accepted.
	Assigned func(tenant string)
	// Visit is told of every request, before it is answered.
	Visit func(Visit) Verdict
}

// Pod is a running server. Safe for concurrent use.
type Pod struct {
	cfg    PodConfig
	member *function.Pod
	server *http.Server
	cut    context.CancelFunc
	done   chan struct{}
}

// StartPod listens until Stop.
func StartPod(cfg PodConfig) (*Pod, error) {
	f := function.NewConfig()
	f.PodName, f.PodUID, f.PublicKeys = cfg.Name, cfg.UID, cfg.Keys
	f.OnAssign = func(_ context.Context, a function.Assignment) error {
		cfg.Assigned(a.Tenant())
		return nil
	}
	member, err := function.New(f)
	if err != nil {
		return nil, fmt.Errorf("make pod %s: %w", cfg.Name, err)
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen for pod %s: %w", cfg.Name, err)
	}
	ctx, cut := context.WithCancel(context.Background())
	p := &Pod{cfg: cfg, member: member, cut: cut, done: make(chan struct{})}
	p.server = &http.Server{
		Handler: p.handler(), ReadHeaderTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go func() {
		defer close(p.done)
		_ = p.server.Serve(l) // ends with Stop
	}()
	return p, nil
}

// Stop ends the pod as kill -9 does: connections are closed, and the address
// can be listened on at once.
func (p *Pod) Stop() {
	_ = p.server.Close() // its error is that of a listener that nobody wants any more
	p.cut()              // last, so that no handler ends its answer as if it were complete
	<-p.done
}

func (p *Pod) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(pathQuick, func(w http.ResponseWriter, r *http.Request) { p.answer(w, r) })
	mux.HandleFunc(pathSlow, p.slow)
	mux.HandleFunc(pathStream, p.stream)
	mux.HandleFunc(pathUpload, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a client that left is not waiting for an answer
		p.answer(w, r)
	})
	mux.HandleFunc(pathWebSocket, p.webSocket)
	app := p.visited(mux)
	if p.cfg.Image == Plain {
		return p.member.Endpoints(app)
	}
	return p.member.Handler(app)
}

// identity is what a pod says of itself.
type identity struct {
	Tenant, UID, Request string
}

// visited tells of the request, and says in the answer who gives it.
func (p *Pod) visited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, _ := p.member.Assigned()
		p.cfg.Visit(Visit{
			At: time.Now(), Addr: p.cfg.Addr, Pod: p.cfg.Name, UID: p.cfg.UID, Image: p.cfg.Image,
			Tenant: a.Tenant(), Oneshot: a.Function.Oneshot, Path: r.URL.Path,
			Asked: r.Header.Get(HeaderAsked), Instance: r.Header.Get(function.HeaderInstance), Request: r.Header.Get(function.HeaderRequest),
		})
		w.Header().Set(HeaderTenant, a.Tenant())
		w.Header().Set(HeaderUID, p.cfg.UID)
		w.Header().Set(HeaderRequest, r.Header.Get(function.HeaderRequest))
		next.ServeHTTP(w, r)
	})
}

func (p *Pod) identity(r *http.Request) identity {
	a, _ := p.member.Assigned()
	return identity{a.Tenant(), p.cfg.UID, r.Header.Get(function.HeaderRequest)}
}

func (p *Pod) answer(w io.Writer, r *http.Request) {
	_ = json.NewEncoder(w).Encode(p.identity(r)) // a client that left is not waiting for an answer
}

func duration(r *http.Request) time.Duration {
	ms, _ := strconv.Atoi(r.URL.Query().Get("ms")) // 0 where it is no number
	return time.Duration(ms) * time.Millisecond
}

// pause is false when the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *Pod) slow(w http.ResponseWriter, r *http.Request) {
	if pause(r.Context(), duration(r)) {
		p.answer(w, r)
	}
}

// tick is the time between two lines of a stream.
const tick = 100 * time.Millisecond

func (p *Pod) stream(w http.ResponseWriter, r *http.Request) {
	out := http.NewResponseController(w)
	for range duration(r) / tick {
		p.answer(w, r)
		if out.Flush() != nil || !pause(r.Context(), tick) {
			return
		}
	}
}

// webSocket answers every message with who answers it.
func (p *Pod) webSocket(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // the answer says why
	}
	defer func() { _ = conn.CloseNow() }()
	for {
		if _, _, err := conn.Read(r.Context()); err != nil {
			return
		}
		text, err := json.Marshal(p.identity(r))
		if err != nil || conn.Write(r.Context(), websocket.MessageText, text) != nil {
			return
		}
	}
}
