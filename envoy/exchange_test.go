package envoy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"skipper/envoy"
)

// exchange is a conversation of a client with function "fn". It must go the
// same way whatever passes it takes.
type exchange struct {
	name    string
	cluster string
	pod     http.Handler
	talk    func(testing.TB, *gateway)
}

func exchanges() []exchange {
	return []exchange{
		{"HTTP/1", http1Cluster, http.HandlerFunc(echoPod), talkHTTP1},
		{"HTTP/2", http1Cluster, http.HandlerFunc(echoPod), talkHTTP2},
		{"HTTP/2 to h2c", h2cCluster, http.HandlerFunc(echoPod), talkHTTP2},
		{"upload", http1Cluster, http.HandlerFunc(lengthPod), talkUpload},
		{"chunked upload", http1Cluster, http.HandlerFunc(lengthPod), talkChunkedUpload},
		{"upload to h2c", h2cCluster, http.HandlerFunc(lengthPod), talkUpload},
		{"both ways", http1Cluster, http.HandlerFunc(linesPod), talkLines},
		{"both ways to h2c", h2cCluster, http.HandlerFunc(linesPod), talkLines},
		{"WebSocket", http1Cluster, http.HandlerFunc(webSocketPod), talkWebSocket},
		{"upgrade", http1Cluster, hijack("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: tcp"), talkUpgrade},
		{"CONNECT", http1Cluster, hijack("HTTP/1.1 200 OK"), talkConnect},
		{"gRPC", h2cCluster, grpcPod(), talkGRPC},
	}
}

// echoPod answers with the body and, as a trailer, with one of the request.
func echoPod(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Trailer", "X-Sum")
	_, _ = io.Copy(w, r.Body)
	w.Header().Set("X-Sum", r.Trailer.Get("X-Sum")+"!")
}

func talkHTTP1(t testing.TB, g *gateway) {
	t.Helper()
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodHead} {
		g.echo(t, g.client, method)
	}
}

func talkHTTP2(t testing.TB, g *gateway) {
	t.Helper()
	c := http2Client(t)
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodHead} {
		g.echo(t, c, method)
	}
}

func (g *gateway) echo(t testing.TB, c *http.Client, method string) {
	t.Helper()
	var body io.Reader
	want := ""
	if method == http.MethodPost {
		want = "body"
		body = io.MultiReader(strings.NewReader(want))
	}
	req := g.request(t, method, "fn", body)
	if body != nil {
		req.Header.Set("Te", "trailers")
		req.Trailer = http.Header{"X-Sum": {"42"}}
	}
	a := g.doWith(t, c, req)
	if a.status != http.StatusOK || a.body != want || method == http.MethodPost && a.trailer.Get("X-Sum") != "42!" {
		t.Errorf("%s: answer is %+v", method, a)
	}
}

func http2Client(t testing.TB) *http.Client {
	t.Helper()
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	c := &http.Client{Transport: &http.Transport{Protocols: p}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

const upload = 5 << 20

// lengthPod answers with the length of the body.
func lengthPod(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		w.WriteHeader(http.StatusTeapot)
	}
	_, _ = io.WriteString(w, strconv.FormatInt(n, 10))
}

func talkUpload(t testing.TB, g *gateway) {
	t.Helper()
	req := g.request(t, http.MethodPut, "fn", io.LimitReader(zeros{}, upload))
	req.ContentLength = upload
	if a := g.do(t, req); a.status != http.StatusOK || a.body != strconv.Itoa(upload) {
		t.Errorf("answer to an upload is %+v", a)
	}
}

func talkChunkedUpload(t testing.TB, g *gateway) {
	t.Helper()
	req := g.request(t, http.MethodPut, "fn", io.LimitReader(zeros{}, upload))
	if a := g.doWith(t, http2Client(t), req); a.status != http.StatusOK || a.body != strconv.Itoa(upload) {
		t.Errorf("answer to an upload is %+v", a)
	}
}

// linesPod answers each line when it comes.
func linesPod(w http.ResponseWriter, r *http.Request) {
	c := http.NewResponseController(w)
	if r.ProtoMajor == 1 && c.EnableFullDuplex() != nil {
		return
	}
	for in := bufio.NewScanner(r.Body); in.Scan(); {
		_, _ = io.WriteString(w, in.Text()+"!\n")
		_ = c.Flush()
	}
}

func talkLines(t testing.TB, g *gateway) {
	t.Helper()
	body, out := io.Pipe()
	defer out.Close()
	go func() { _, _ = io.WriteString(out, "one\n") }()
	res, err := http2Client(t).Do(g.request(t, http.MethodPost, "fn", body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	for _, next := range []string{"two\n", "three\n", ""} {
		line, err := in.ReadString('\n')
		if err != nil || !strings.HasSuffix(line, "!\n") {
			t.Fatalf("line is %q, %v, status %d", line, err, res.StatusCode)
		}
		if next == "" {
			_ = out.Close()
		} else {
			_, _ = io.WriteString(out, next)
		}
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("after the last line came %q, %v", rest, err)
	}
}

func webSocketPod(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	for {
		kind, message, err := conn.Read(r.Context())
		if err != nil || conn.Write(r.Context(), kind, message) != nil {
			return
		}
	}
}

func talkWebSocket(t testing.TB, g *gateway) {
	t.Helper()
	conn, res, err := websocket.Dial(t.Context(), "ws://"+g.addr("::1")+"/ws", &websocket.DialOptions{
		HTTPClient: g.client, HTTPHeader: http.Header{envoy.HeaderFunction: {"fn"}},
	})
	if err != nil {
		t.Fatalf("%v, answer %+v", err, res)
	}
	defer conn.CloseNow()
	for i := range 3 {
		want := "message " + strconv.Itoa(i)
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := conn.Read(t.Context()); err != nil || string(got) != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
	if err := conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Errorf("close WebSocket: %v", err)
	}
}

func talkUpgrade(t testing.TB, g *gateway) {
	t.Helper()
	g.tunnel(t, "GET /x HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: tcp\r\n", http.StatusSwitchingProtocols)
}

func talkConnect(t testing.TB, g *gateway) {
	t.Helper()
	g.tunnel(t, "CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\n", http.StatusOK)
}

// tunnel asks for one and has a line echoed through it.
func (g *gateway) tunnel(t testing.TB, head string, status int) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", g.addr("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%sx-skipper-function: fn\r\n\r\n", head)
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != status {
		t.Fatalf("status is %d, want %d", res.StatusCode, status)
	}
	fmt.Fprint(conn, "hello\n")
	if got, err := in.ReadString('\n'); err != nil || got != "hello\n" {
		t.Errorf("echo is %q, %v", got, err)
	}
}

func grpcPod() http.Handler {
	s := grpc.NewServer()
	healthpb.RegisterHealthServer(s, health.NewServer())
	return s
}

func talkGRPC(t testing.TB, g *gateway) {
	t.Helper()
	conn, err := grpc.NewClient(g.addr("127.0.0.1"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), envoy.HeaderFunction, "fn")
	client := healthpb.NewHealthClient(conn)
	if got, err := client.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("call ended with %v, %v", got, err)
	}
	if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{Service: "no"}); status.Code(err) != codes.NotFound {
		t.Errorf("call of an unknown service ended with %v", err)
	}
}
