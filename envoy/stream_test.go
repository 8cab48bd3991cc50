package envoy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
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

func TestExtprocStreamLastsAsLongAsTheAnswer(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	more := make(chan struct{})
	g.serverPod(t, "fn", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-more
		_, _ = io.WriteString(w, "data: 2\n\n")
	}))
	res, err := g.client.Do(g.request(t, http.MethodGet, "fn", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	if line, err := in.ReadString('\n'); err != nil || line != "data: 1\n" {
		t.Fatalf("first event is %q, %v", line, err)
	}
	if len(g.processor.ends) > 0 {
		t.Error("the ext_proc stream ended before the answer")
	}
	close(more)
	if _, err := io.ReadAll(in); err != nil {
		t.Fatal(err)
	}
	g.ended(t)
}

func TestClientThatLeavesEndsTheExtprocStream(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	arrived := make(chan struct{})
	g.serverPod(t, "fn", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}))
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-arrived
		leave()
	}()
	if res, err := g.client.Do(g.request(t, http.MethodGet, "fn", nil).WithContext(ctx)); !errors.Is(err, context.Canceled) {
		_ = res.Body.Close()
		t.Fatalf("request ended with %v", err)
	}
	g.ended(t)
}

func TestWebSocketPasses(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	g.serverPod(t, "fn", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		for {
			kind, message, err := conn.Read(r.Context())
			if err != nil || conn.Write(r.Context(), kind, message) != nil {
				return
			}
		}
	}))
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
	if len(g.processor.ends) > 0 {
		t.Error("the ext_proc stream ended before the WebSocket")
	}
	if err := conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Errorf("close WebSocket: %v", err)
	}
	g.ended(t)
}

// hijack answers head and then echoes what comes.
func hijack(head string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, head+"\r\n\r\n")
		_, _ = io.Copy(conn, rw)
	})
}

func TestOtherUpgradesAndConnect(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, head, answer, want string }{
		{"listed", "GET /x HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: tcp\r\n", "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: tcp", "HTTP/1.1 101 "},
		{"CONNECT", "CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\n", "HTTP/1.1 200 OK", "HTTP/1.1 200 "},
		{"not listed", "GET /x HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: odd\r\n", "", "HTTP/1.1 403 "},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, nil)
			g.serverPod(t, "fn", hijack(row.answer))
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", g.addr("127.0.0.1"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "%sx-skipper-function: fn\r\n\r\n", row.head)
			in := bufio.NewReader(conn)
			res, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if !strings.HasPrefix(row.want, "HTTP/1.1 "+strconv.Itoa(res.StatusCode)) {
				t.Fatalf("status is %d, want %s", res.StatusCode, row.want)
			}
			if row.answer == "" {
				return
			}
			fmt.Fprint(conn, "hello\n")
			if got, err := in.ReadString('\n'); err != nil || got != "hello\n" {
				t.Errorf("echo is %q, %v", got, err)
			}
		})
	}
}

func TestGRPCPassesToH2CPod(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	s := grpc.NewServer()
	h := health.NewServer()
	healthpb.RegisterHealthServer(s, h)
	g.pod(t, "fn", h2cCluster, serve(t, s, "tcp", "127.0.0.1:0"))
	conn, err := grpc.NewClient(g.addr("127.0.0.1"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := healthpb.NewHealthClient(conn)
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), envoy.HeaderFunction, "fn"))
	defer cancel()
	var trailer metadata.MD
	_, err = client.Check(ctx, &healthpb.HealthCheckRequest{Service: "unknown"}, grpc.Trailer(&trailer))
	if status.Code(err) != codes.NotFound {
		t.Fatalf("unary call ended with %v, trailer %v", err, trailer)
	}
	g.ended(t)
	stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []healthpb.HealthCheckResponse_ServingStatus{healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING} {
		h.SetServingStatus("", want)
		if got, err := stream.Recv(); err != nil || got.GetStatus() != want {
			t.Fatalf("stream sent %v, %v, want %v", got, err, want)
		}
	}
	if len(g.processor.ends) > 0 {
		t.Error("the ext_proc stream ended before the gRPC stream")
	}
	cancel()
	g.ended(t)
}

func TestGRPCCallerLearnsTheReason(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	g.processor.route("gone", "skipper-h2c-999", "192.0.2.1:80")
	conn, err := grpc.NewClient(g.addr("127.0.0.1"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var head metadata.MD
	ctx := metadata.AppendToOutgoingContext(t.Context(), envoy.HeaderFunction, "gone")
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Header(&head), grpc.Trailer(&head))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no instance of the function") {
		t.Errorf("call ended with %v", err)
	}
	if got := head.Get(envoy.HeaderReason); len(got) != 1 || got[0] != "no_instance" {
		t.Errorf("reason is %v of %v", got, head)
	}
}

func TestTrailersPassButForOurs(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	g.serverPod(t, "fn", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum, X-Skipper-Reason")
		_, _ = io.Copy(w, r.Body)
		w.Header().Set("X-Sum", r.Trailer.Get("X-Sum")+"!"+r.Trailer.Get(envoy.HeaderInstance))
		w.Header().Set(envoy.HeaderReason, "spoofed")
	}))
	req := g.request(t, http.MethodPost, "fn", io.MultiReader(strings.NewReader("body")))
	req.Header.Set("Te", "trailers")
	req.Trailer = http.Header{"X-Sum": {"42"}, "X-Skipper-Instance": {"spoofed"}}
	a := g.do(t, req)
	if a.body != "body" || a.trailer.Get("X-Sum") != "42!" || a.trailer.Get(envoy.HeaderReason) != "" {
		t.Errorf("answer is %+v", a)
	}
	g.ended(t)
}

const large = 100 << 20

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestLargeBodiesStreamThroughLittleMemory(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	g.serverPod(t, "fn", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.Copy(w, io.LimitReader(zeros{}, large))
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, strconv.FormatInt(n, 10))
	}))
	before := residentKiB(t, g.Pid())
	if a := g.do(t, g.request(t, http.MethodPut, "fn", io.LimitReader(zeros{}, large))); a.body != strconv.Itoa(large) {
		t.Errorf("pod read %s bytes, want %d", a.body, large)
	}
	if a := g.do(t, g.request(t, http.MethodGet, "fn", nil)); len(a.body) != large {
		t.Errorf("client read %d bytes, want %d", len(a.body), large)
	}
	if grown := residentKiB(t, g.Pid()) - before; grown > 32<<10 {
		t.Errorf("Envoy grew by %d KiB at its peak", grown)
	}
}

// residentKiB is the largest resident memory that a process ever had.
func residentKiB(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("no VmHWM in\n%s", text)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
