package lifetime

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"skipper/envoy"
	"skipper/envoy/envoytest"
	"skipper/xds"
	"skipper/xds/server"
)

// published are the pods that Envoy knows, by pool.
var published = map[string]int{poolHTTP1: 2500, poolH2C: 500, poolDead: 50, poolStray: 50, poolRuins: 600}

// nets are the second bytes of pods' addresses, by pool.
var nets = map[string]int{poolHTTP1: 21, poolH2C: 22, poolDead: 23, poolStray: 24, poolRuins: 25, poolNowhere: 26}

// pods are one server that listens on all of 127.0.0.0/8: each address is a pod.
type pods struct {
	port, deadPort uint16

	mu    sync.Mutex
	stage *stage
}

// stage is where a test and the pods meet.
type stage struct {
	// reached gets a value for each request that has come to a pod and waits there.
	reached chan struct{}
	// answered gets a value for each client that has a piece of the answer.
	answered chan struct{}
	// proceed is closed when those that wait shall go on.
	proceed chan struct{}
}

func newStage() *stage {
	return &stage{reached: make(chan struct{}, 10_000), answered: make(chan struct{}, 10_000), proceed: make(chan struct{})}
}

// connKey finds the connection of a request in its context.
type connKey struct{}

func startPods(t testing.TB) *pods {
	t.Helper()
	p := &pods{deadPort: envoytest.FreePorts(t, 1)[0], stage: newStage()}
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	p.port = uint16(ln.Addr().(*net.TCPAddr).Port)
	s := &http.Server{
		Handler: p, Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 10_000},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	var running sync.WaitGroup
	running.Go(func() { _ = s.Serve(ln) }) // ends with Close
	t.Cleanup(func() {
		_ = s.Close()
		running.Wait()
	})
	return p
}

// choose says which kind of pod a pool hands out as the n-th of a function.
func (p *pods) choose(pool string, n int) string {
	if n > 0 && (pool == poolDead || pool == poolStray) {
		return poolHTTP1
	}
	return pool
}

// endpoint is the i-th pod of a kind.
func (p *pods) endpoint(kind string, i int) server.Endpoint {
	port := p.port
	if kind == poolDead || kind == poolRuins {
		port = p.deadPort
	}
	e := server.Endpoint{
		UID: fmt.Sprintf("uid-%s-%d", kind, i), Protocol: xds.HTTP1,
		Addr: fmt.Sprintf("127.%d.%d.%d:%d", nets[kind], i/250, i%250+1, port),
	}
	if kind == poolH2C {
		e.Protocol = xds.H2C
	}
	return e
}

func (p *pods) endpoints() []server.Endpoint {
	var out []server.Endpoint
	for kind, n := range published {
		for i := range n {
			out = append(out, p.endpoint(kind, i))
		}
	}
	return out
}

// set begins a scene.
func (p *pods) set(s *stage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stage = s
}

func (p *pods) current() *stage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stage
}

// headerAct says what the pod shall do.
const headerAct = "X-Act"

func (p *pods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if strings.HasPrefix(addr.String(), fmt.Sprintf("127.%d.", nets[poolStray])) {
		w.Header().Set(envoy.HeaderMisdirected, "1")
		w.WriteHeader(http.StatusMisdirectedRequest)
		return
	}
	_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 is that without
	act, known := acts[r.Header.Get(headerAct)]
	if !known {
		http.Error(w, "no such act", http.StatusNotImplemented)
		return
	}
	act(&visit{ResponseWriter: w, r: r, stage: p.current(), grpc: strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")})
}

// visit is a request at a pod.
type visit struct {
	http.ResponseWriter
	r     *http.Request
	stage *stage
	grpc  bool
}

// acts are what a pod can do.
var acts = map[string]func(*visit){
	"answer":        (*visit).answer,
	"204":           func(v *visit) { v.WriteHeader(http.StatusNoContent) },
	"304":           func(v *visit) { v.WriteHeader(http.StatusNotModified) },
	"500":           (*visit).fail,
	"421":           func(v *visit) { http.Error(v, "not mine", http.StatusMisdirectedRequest) },
	"early hints":   (*visit).hint,
	"answer early":  func(v *visit) { v.say("hello\n") },
	"trailers":      (*visit).trail,
	"wait":          (*visit).wait,
	"stream":        (*visit).stream,
	"flood":         (*visit).flood,
	"take":          (*visit).take,
	"close":         func(v *visit) { v.cut(false) },
	"reset":         func(v *visit) { v.cut(true) },
	"abort":         func(*visit) { panic(http.ErrAbortHandler) },
	"stream, close": func(v *visit) { v.begin(); v.cut(false) },
	"stream, reset": func(v *visit) { v.begin(); v.cut(true) },
	"stream, abort": func(v *visit) { v.begin(); panic(http.ErrAbortHandler) },
	"nonsense":      func(v *visit) { v.hijack("SMTP is what I speak", nil) },
	"echo":          func(v *visit) { v.tunnel(echo) },
	"bye":           func(v *visit) { v.tunnel(func(rw *bufio.ReadWriter) { line(rw); v.settle() }) },
	"bye, reset":    func(v *visit) { v.tunnel(func(rw *bufio.ReadWriter) { line(rw); v.settle(); v.linger() }) },
}

// answer reads all and answers all.
func (v *visit) answer() {
	n, _ := io.Copy(io.Discard, v.r.Body)
	if n > 0 && !v.grpc {
		v.say(fmt.Sprintf("%d bytes\n", n))
		return
	}
	v.say("hello\n")
	v.end("0")
}

// fail answers with an error of the function's own.
func (v *visit) fail() {
	if v.grpc {
		v.Header().Set("Content-Type", "application/grpc")
		v.Header().Set("Grpc-Status", "13")
		return
	}
	http.Error(v, "broken", http.StatusInternalServerError)
}

func (v *visit) hint() {
	v.Header().Set("Link", "</style.css>; rel=preload")
	v.WriteHeader(http.StatusEarlyHints)
	v.say("hello\n")
}

func (v *visit) trail() {
	_, _ = io.Copy(io.Discard, v.r.Body)
	v.Header().Set("Trailer", "X-Sum")
	v.say("hello\n")
	v.Header().Set("X-Sum", "got "+v.r.Trailer.Get("X-Sum"))
}

// say writes a piece of the answer.
func (v *visit) say(text string) {
	if v.grpc {
		v.Header().Set("Content-Type", "application/grpc")
		text = frame(text)
	}
	_, _ = io.WriteString(v, text) // who left needs no answer
	_ = http.NewResponseController(v.ResponseWriter).Flush()
}

func frame(text string) string {
	return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text)))) + text
}

// end closes a gRPC answer with a status.
func (v *visit) end(status string) {
	if v.grpc {
		v.Header().Set(http.TrailerPrefix+"Grpc-Status", status)
	}
}

// settle waits until the test goes on, or the request is over.
func (v *visit) settle() {
	v.stage.reached <- struct{}{}
	select {
	case <-v.stage.proceed:
	case <-v.r.Context().Done():
	}
}

func (v *visit) wait() {
	v.settle()
	v.say("hello\n")
	v.end("0")
}

// begin is the first piece of an answer.
func (v *visit) begin() {
	v.say("first\n")
	v.settle()
}

func (v *visit) stream() {
	v.begin()
	v.say("second\n")
	v.end("0")
}

// flood answers without an end, whether or not it is read.
func (v *visit) flood() {
	v.say("first\n")
	v.stage.reached <- struct{}{}
	block := strings.Repeat("x", 1<<16)
	for v.r.Context().Err() == nil {
		if _, err := io.WriteString(v, block); err != nil {
			return
		}
	}
}

// take reads a body of which a part has come for sure.
func (v *visit) take() {
	_, _ = v.r.Body.Read(make([]byte, 1))
	v.stage.reached <- struct{}{}
	_, _ = io.Copy(io.Discard, v.r.Body)
	v.say("hello\n")
	v.end("0")
}

// cut ends the connection, with a reset or in order.
func (v *visit) cut(reset bool) {
	if reset {
		v.linger()
	}
	v.conn().Close()
}

func (v *visit) conn() net.Conn { return v.r.Context().Value(connKey{}).(net.Conn) }

func (v *visit) linger() { _ = v.conn().(*net.TCPConn).SetLinger(0) }

// hijack writes head and leaves the connection to then.
func (v *visit) hijack(head string, then func(*bufio.ReadWriter)) {
	conn, rw, err := http.NewResponseController(v.ResponseWriter).Hijack()
	if err != nil {
		http.Error(v, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, head+"\r\n\r\n")
	if then != nil {
		then(rw)
	}
}

// tunnel accepts an upgrade or CONNECT.
func (v *visit) tunnel(then func(*bufio.ReadWriter)) {
	head := "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: " + v.r.Header.Get("Upgrade")
	if v.r.Method == http.MethodConnect {
		head = "HTTP/1.1 200 OK"
	}
	v.hijack(head, then)
}

// line echoes one line.
func line(rw *bufio.ReadWriter) {
	text, err := rw.ReadString('\n')
	if err == nil {
		_, _ = rw.WriteString(text)
		_ = rw.Flush()
	}
}

func echo(rw *bufio.ReadWriter) {
	for {
		if _, err := rw.Peek(1); err != nil {
			return
		}
		line(rw)
	}
}

// longWait bounds what must come; it says nothing about how fast Skipper is.
const longWait = 20 * time.Second
