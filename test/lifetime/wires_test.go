package lifetime

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"skipper/envoy"
)

// wire is how a client speaks to Envoy, and what the pod speaks.
type wire string

const (
	http1     wire = "HTTP/1.1"
	http2Wire wire = "HTTP/2"
	http2c    wire = "HTTP/2 to h2c"
	grpcWire  wire = "gRPC"
	ws1       wire = "WebSocket"
	ws2       wire = "WebSocket over HTTP/2"
	connect1  wire = "CONNECT"
	connect2  wire = "CONNECT over HTTP/2"
)

// pool is the usual pool of a wire.
func (w wire) pool() string {
	if w == http2c || w == grpcWire {
		return poolH2C
	}
	return poolHTTP1
}

// conduct is what a client does.
type conduct string

const (
	stays        conduct = ""                      // reads all
	leaves       conduct = "leaves before"         // leaves when the pod has the request
	leavesMid    conduct = "leaves in the middle"  // leaves when a piece of the answer has come
	vanishes     conduct = "vanishes"              // resets its connection then
	leavesUpload conduct = "leaves its upload"     // leaves when the pod reads the body
	staysUpload  conduct = "uploads"               // sends a body slowly, and reads all
	closes       conduct = "closes"                // ends its half of a tunnel, and reads to the end
	leavesQueue  conduct = "leaves the queue"      // leaves before there is a pod
	hangsUp      conduct = "hangs up"              // closes its connection when a piece has come
	pipelines    conduct = "sends three at once"   // HTTP/1.1 only
	raw          conduct = "sends what is no HTTP" // HTTP/1.1 only
	oldVersion   conduct = "speaks HTTP/1.0"       // HTTP/1.1 only
)

// call is one request, or what goes for one.
type call struct {
	addr    string // Envoy's
	wire    wire
	conduct conduct
	method  string // default GET, POST with a body
	path    string
	act     string
	headers http.Header
	stage   *stage
	// timeout is the client's own patience, told to the server where the wire has words for it.
	timeout time.Duration
}

// What a client may see beside a status.
const (
	sawNothing = "no answer" // the connection ended before the answer
	sawCut     = "cut"       // the answer ended before its end
	sawLeft    = "left"      // the client left
)

// errStuck is why a request ends that does not end.
var errStuck = errors.New("waited too long")

// do sends the request and says what the client saw.
func (c *call) do(ctx context.Context) string {
	ctx, giveUp := context.WithTimeoutCause(ctx, longWait, errStuck)
	defer giveUp()
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	if c.conduct == leaves || c.conduct == leavesUpload {
		unhook := c.leaveAtPod(ctx, leave)
		defer unhook()
	}
	switch c.wire {
	case grpcWire:
		return c.grpc(ctx, leave)
	case ws1, connect1:
		return c.tunnel(ctx)
	case ws2, connect2:
		return c.tunnel2(ctx, leave)
	}
	switch c.conduct {
	case pipelines, raw, oldVersion:
		return c.bytes(ctx)
	}
	return c.http(ctx, leave)
}

// leaveAtPod calls leave when a pod has the request; call the result at the end.
func (c *call) leaveAtPod(ctx context.Context, leave func()) func() {
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-c.stage.reached:
			leave()
		case <-ctx.Done():
		}
	})
	return func() { leave(); watching.Wait() }
}

// clientConns are the ends of a client, which may reset them.
type clientConns struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (l *clientConns) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns = append(l.conns, conn)
	}
	return conn, err
}

// close ends all connections, with a reset or in order.
func (l *clientConns) close(reset bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.conns {
		if reset {
			_ = conn.(*net.TCPConn).SetLinger(0)
		}
		_ = conn.Close()
	}
}

// transport is of the call's version, with connections of its own.
func (c *call) transport(l *clientConns) (http.RoundTripper, func()) {
	if c.wire == http1 {
		t := &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return l.dial(ctx, addr) }}
		return t, t.CloseIdleConnections
	}
	//nolint:staticcheck // it is known to speak extended CONNECT without TLS
	t := &http2.Transport{AllowHTTP: true, DialTLSContext: func(ctx context.Context, _, addr string, _ *tls.Config) (net.Conn, error) {
		return l.dial(ctx, addr)
	}}
	return t, t.CloseIdleConnections //nolint:staticcheck // as above
}

func (c *call) request(ctx context.Context, body io.Reader) *http.Request {
	method := c.method
	if method == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.addr+c.path, body)
	if err != nil {
		panic(err) // method and path are the rows' own
	}
	req.Header = c.headers.Clone()
	req.Header.Set(headerAct, c.act)
	return req
}

// body is what the client sends, and the end to write it.
func (c *call) body() (io.Reader, *io.PipeWriter) {
	switch c.conduct {
	case leavesUpload, staysUpload:
		r, w := io.Pipe()
		return r, w
	}
	if c.method == http.MethodPost {
		return strings.NewReader("0123456789"), nil
	}
	return nil, nil
}

func (c *call) http(ctx context.Context, leave func()) string {
	conns := &clientConns{}
	transport, free := c.transport(conns)
	defer free()
	body, feed := c.body()
	req := c.request(ctx, body)
	var feeding sync.WaitGroup
	defer feeding.Wait()
	if feed != nil {
		feeding.Go(func() { _, _ = io.WriteString(feed, "piece\n") }) // no more comes
		// The client waits for the body, even then. It must not end well, or the pod could answer yet.
		unhook := context.AfterFunc(ctx, func() { _ = feed.CloseWithError(context.Canceled) })
		defer unhook()
		defer feed.Close()
	}
	if c.act == "trailers" {
		req.Header.Set("Te", "trailers")
		if body != nil {
			req.Body, req.ContentLength = io.NopCloser(body), -1
			req.Trailer = http.Header{"X-Sum": {"42"}}
		}
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return failure(ctx, sawNothing)
	}
	defer res.Body.Close()
	c.stage.answered <- struct{}{}
	return c.read(ctx, res, func(reset bool) { conns.close(reset) }, leave)
}

// read goes on from the headers of the answer.
func (c *call) read(ctx context.Context, res *http.Response, close func(reset bool), leave func()) string {
	saw := fmt.Sprint(res.StatusCode)
	if why := res.Header.Get(envoy.HeaderReason); why != "" {
		saw += " " + why
	}
	switch c.conduct {
	case leavesMid, vanishes, hangsUp:
		if _, err := io.ReadFull(res.Body, make([]byte, 1)); err != nil {
			return saw + ", " + sawCut
		}
		if c.conduct == leavesMid {
			leave()
		} else {
			close(c.conduct == vanishes)
		}
		return sawLeft
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return saw + ", " + failure(ctx, sawCut)
	}
	if sum := res.Trailer.Get("X-Sum"); sum != "" {
		saw += ", trailers"
	}
	return saw
}

// failure says whose doing an error was.
func failure(ctx context.Context, theirs string) string {
	switch {
	case errors.Is(context.Cause(ctx), errStuck):
		return "stuck"
	case ctx.Err() != nil:
		return sawLeft
	}
	return theirs
}

// bytes is for what Go's client would not send.
func (c *call) bytes(ctx context.Context) string {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return err.Error()
	}
	unhook := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer unhook()
	defer conn.Close()
	one := c.head("GET "+c.path, "HTTP/1.1")
	n := 1
	switch c.conduct {
	case pipelines:
		one, n = strings.Repeat(one, 3), 3
	case oldVersion:
		one = c.head("GET "+c.path, "HTTP/1.0")
	case raw:
		one = "BREW /pot\r\n\r\n"
	}
	_, _ = io.WriteString(conn, one)
	in := bufio.NewReader(conn)
	var saw []string
	for range n {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return sawNothing
		}
		saw = append(saw, c.read(ctx, res, nil, nil))
		_ = res.Body.Close()
	}
	return strings.Join(saw, ", ")
}

func (c *call) head(start, version string) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s\r\nHost: %s\r\n%s: %s\r\n", start, version, c.addr, headerAct, c.act)
	_ = c.headers.Write(&b) // to memory
	return b.String() + "\r\n"
}

// tunnel is an upgrade or CONNECT over HTTP/1.1.
func (c *call) tunnel(ctx context.Context) string {
	conns := &clientConns{}
	conn, err := conns.dial(ctx, c.addr)
	if err != nil {
		return err.Error()
	}
	unhook := context.AfterFunc(ctx, func() { conns.close(false) })
	defer unhook()
	defer conns.close(false)
	start := "GET " + c.path
	if c.wire == connect1 {
		start = "CONNECT example.com:80"
	} else {
		protocol := "websocket"
		if c.method != "" {
			protocol = c.method
		}
		c.headers.Set("Connection", "upgrade")
		c.headers.Set("Upgrade", protocol)
		c.headers.Set("Sec-Websocket-Version", "13")
		c.headers.Set("Sec-Websocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
	}
	_, _ = io.WriteString(conn, c.head(start, "HTTP/1.1"))
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return failure(ctx, sawNothing)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusSwitchingProtocols && res.StatusCode != http.StatusOK {
		return c.read(ctx, res, nil, nil)
	}
	return fmt.Sprint(res.StatusCode) + ", " + c.talk(conn, in, func(reset bool) {
		if reset {
			conns.close(true)
			return
		}
		_ = conn.(*net.TCPConn).CloseWrite()
	}, nil)
}

// tunnel2 is an upgrade or CONNECT over HTTP/2.
func (c *call) tunnel2(ctx context.Context, leave func()) string {
	conns := &clientConns{}
	transport, free := c.transport(conns)
	defer free()
	up, feed := io.Pipe()
	defer feed.Close()
	c.method = http.MethodConnect
	req := c.request(ctx, up)
	if c.wire == connect2 {
		req.URL.Path, req.Host = "", "example.com:80"
	} else {
		req.Header.Set(":protocol", "websocket")
		req.Header.Set("Sec-Websocket-Version", "13")
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return failure(ctx, sawNothing)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return c.read(ctx, res, nil, nil)
	}
	return fmt.Sprint(res.StatusCode) + ", " + c.talk(feed, bufio.NewReader(res.Body), func(reset bool) {
		if reset {
			conns.close(true)
			return
		}
		_ = feed.Close()
	}, leave)
}

// talk is a line to and fro, and then the end of the tunnel.
func (c *call) talk(out io.Writer, in *bufio.Reader, end func(reset bool), leave func()) string {
	if _, err := io.WriteString(out, "hello\n"); err != nil {
		return sawCut
	}
	if text, err := in.ReadString('\n'); err != nil || text != "hello\n" {
		return sawCut
	}
	c.stage.answered <- struct{}{}
	switch c.conduct {
	case leavesMid: // a reset of the stream; HTTP/1.1 has none
		if leave == nil {
			end(true)
		} else {
			leave()
		}
		return sawLeft
	case vanishes:
		end(true)
		return sawLeft
	case closes:
		end(false)
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return sawCut
	}
	return "closed"
}

// plain passes bytes as they are.
type plain struct{}

func (plain) Name() string { return "plain" }

func (plain) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (plain) Unmarshal(b mem.BufferSlice, v any) error {
	*v.(*[]byte) = b.Materialize()
	return nil
}

func (c *call) grpc(ctx context.Context, leave func()) string {
	conns := &clientConns{}
	conn, err := grpc.NewClient("passthrough:///"+c.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(plain{})), grpc.WithContextDialer(conns.dial))
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	for name, values := range c.headers {
		ctx = metadata.AppendToOutgoingContext(ctx, strings.ToLower(name), values[0])
	}
	ctx = metadata.AppendToOutgoingContext(ctx, strings.ToLower(headerAct), c.act)
	own, cancel := ctx, func() {}
	if c.timeout > 0 {
		own, cancel = context.WithTimeout(ctx, c.timeout)
	}
	defer cancel()
	s, err := conn.NewStream(own, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+c.path+"/Call")
	if err != nil {
		return c.code(ctx, err, nil)
	}
	err = s.SendMsg([]byte("ask"))
	if err == nil && c.conduct != staysUpload && c.conduct != leavesUpload {
		err = s.CloseSend()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return c.code(ctx, err, s)
	}
	return c.receive(ctx, s, conns, leave)
}

func (c *call) receive(ctx context.Context, s grpc.ClientStream, conns *clientConns, leave func()) string {
	for {
		var m []byte
		err := s.RecvMsg(&m)
		if errors.Is(err, io.EOF) {
			return "OK"
		}
		if err != nil {
			return c.code(ctx, err, s)
		}
		c.stage.answered <- struct{}{}
		switch c.conduct {
		case leavesMid:
			leave()
			return sawLeft
		case vanishes, hangsUp:
			conns.close(c.conduct == vanishes)
			return sawLeft
		}
	}
}

func (c *call) code(ctx context.Context, err error, s grpc.ClientStream) string {
	if ctx.Err() != nil {
		return failure(ctx, "")
	}
	saw := status.Code(err).String()
	if s == nil || status.Code(err) == codes.DeadlineExceeded {
		return saw
	}
	head, _ := s.Header() // without one there is no reason
	for _, md := range []metadata.MD{head, s.Trailer()} {
		if why := md.Get(envoy.HeaderReason); len(why) > 0 {
			return saw + " " + why[0]
		}
	}
	return saw
}
