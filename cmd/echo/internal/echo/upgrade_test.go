package echo_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	reflectgrpc "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"skipper/cmd/echo/internal/echo"
)

func TestWebSocketEcho(t *testing.T) {
	addr := start(t, sample(), nil)
	opts := &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"https://elsewhere.example"}}}
	conn, resp, err := websocket.Dial(t.Context(), "ws://"+addr+"/ws", opts)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	conn.SetReadLimit(-1)
	if tenant := resp.Header.Get(echo.HeaderTenant); tenant != "a" {
		t.Errorf("handshake is signed by tenant %q", tenant)
	}
	messages := []struct {
		kind websocket.MessageType
		data []byte
	}{
		{websocket.MessageText, []byte("hello")},
		{websocket.MessageText, nil},
		{websocket.MessageBinary, bytes.Repeat([]byte{0, 1, 255}, 100_000)},
	}
	for _, m := range messages {
		if err := conn.Write(t.Context(), m.kind, m.data); err != nil {
			t.Fatal(err)
		}
		kind, data, err := conn.Read(t.Context())
		if err != nil || kind != m.kind || !bytes.Equal(data, m.data) {
			t.Errorf("%d bytes of %v came back as %d bytes of %v, %v", len(m.data), m.kind, len(data), kind, err)
		}
	}
	if err := conn.Close(websocket.StatusNormalClosure, "done"); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestWebSocketWithoutUpgrade(t *testing.T) {
	addr := start(t, sample(), nil)
	both(t, func(t *testing.T, c *http.Client) {
		if resp, _ := do(t, c, request(t, http.MethodGet, "http://"+addr+"/ws", http.NoBody)); resp.StatusCode != http.StatusUpgradeRequired {
			t.Errorf("status %d, want 426", resp.StatusCode)
		}
	})
}

func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func payload(data string) *testgrpc.Payload { return &testgrpc.Payload{Body: []byte(data)} }

func TestGRPCUnary(t *testing.T) {
	calls := testgrpc.NewTestServiceClient(dial(t, start(t, sample(), nil)))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-grpc-test-echo-initial", "mark")
	var header metadata.MD
	got, err := calls.UnaryCall(ctx, &testgrpc.SimpleRequest{ResponseSize: 7, Payload: payload("hello")}, grpc.Header(&header))
	if err != nil || len(got.GetPayload().GetBody()) != 7 {
		t.Errorf("got %v, %v", got, err)
	}
	for name, want := range map[string]string{"x-grpc-test-echo-initial": "mark", "x-echo-pod": "pod-1", "x-echo-tenant": "a"} {
		if values := header.Get(name); len(values) != 1 || values[0] != want {
			t.Errorf("metadata %s is %q, want %q", name, values, want)
		}
	}
	wanted := &testgrpc.EchoStatus{Code: int32(codes.ResourceExhausted), Message: "as asked"}
	_, err = calls.UnaryCall(t.Context(), &testgrpc.SimpleRequest{ResponseStatus: wanted})
	if s := status.Convert(err); s.Code() != codes.ResourceExhausted || s.Message() != "as asked" {
		t.Errorf("status %v", s)
	}
}

// gRPC's own interoperability client against the service, each kind of stream.
func TestGRPCStreams(t *testing.T) {
	calls := testgrpc.NewTestServiceClient(dial(t, start(t, sample(), nil)))
	for name, run := range map[string]func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption){
		"large unary": interop.DoLargeUnaryCall, "client": interop.DoClientStreaming, "server": interop.DoServerStreaming,
		"ping pong": interop.DoPingPong, "empty": interop.DoEmptyStream, "cancel": interop.DoCancelAfterFirstResponse,
	} {
		t.Run(name, func(t *testing.T) { run(t.Context(), calls) })
	}
}

func TestGRPCHealthAndReflection(t *testing.T) {
	conn := dial(t, start(t, sample(), nil))
	health, err := healthgrpc.NewHealthClient(conn).Check(t.Context(), &healthgrpc.HealthCheckRequest{})
	if err != nil || health.GetStatus() != healthgrpc.HealthCheckResponse_SERVING {
		t.Errorf("health %v, %v", health, err)
	}
	stream, err := reflectgrpc.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list := &reflectgrpc.ServerReflectionRequest{MessageRequest: &reflectgrpc.ServerReflectionRequest_ListServices{}}
	if err := stream.Send(list); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, service := range answer.GetListServicesResponse().GetService() {
		found = found || service.GetName() == "grpc.testing.TestService"
	}
	if !found {
		t.Errorf("services %v", answer)
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("end of the stream: %v", err)
	}
}
