//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/proto/reason"
)

// A gRPC client reaches a gRPC function with nothing but one more metadata entry.
func TestGRPC(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 1, withH2C)
	calls := p.grpcClient(t)
	ctx, cancel := context.WithTimeout(functionContext(t.Context(), p.function("a")), patience)
	defer cancel()
	t.Run("unary", func(t *testing.T) { wantUnary(ctx, t, calls) })
	t.Run("status", func(t *testing.T) { wantStatus(ctx, t, calls) })
	t.Run("both directions", func(t *testing.T) { wantPingPong(ctx, t, calls) })
	t.Run("from the server", func(t *testing.T) { wantServerStream(ctx, t, calls) })
	t.Run("from the client", func(t *testing.T) { wantClientStream(ctx, t, calls) })
	p.wantClaims(t, p.tenant("a"), 1)
}

// A refusal reaches a gRPC client as a gRPC status, with the reason beside it.
func TestGRPCRefusal(t *testing.T) {
	t.Parallel()
	calls := newWorld(t).grpcClient(t)
	elsewhere := &skipperpb.Function{Namespace: "elsewhere", Deployment: "x", Tenant: "a", Scale: &skipperpb.Scale{MaxInstances: 1}}
	wantGRPCRefusal(t.Context(), t, calls, reason.HeaderMissing)
	wantGRPCRefusal(functionContext(t.Context(), elsewhere), t, calls, reason.NamespaceNotManaged)
}

func wantGRPCRefusal(ctx context.Context, t *testing.T, calls testgrpc.TestServiceClient, want reason.Reason) {
	t.Helper()
	var header, trailer metadata.MD
	_, err := calls.EmptyCall(ctx, &testgrpc.Empty{}, grpc.Header(&header), grpc.Trailer(&trailer))
	got := strings.Join(append(header.Get(reason.Header), trailer.Get(reason.Header)...), ",")
	if status.Code(err) == codes.OK || got != string(want) {
		t.Errorf("want reason %q: %v, header %v, trailer %v", want, err, header, trailer)
	}
}

func (w *world) grpcClient(t *testing.T) testgrpc.TestServiceClient {
	t.Helper()
	address := strings.TrimPrefix(w.gateway, "http://")
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // only says that it is closed already
	return testgrpc.NewTestServiceClient(conn)
}

func functionContext(ctx context.Context, f *skipperpb.Function) context.Context {
	return metadata.AppendToOutgoingContext(ctx, strings.ToLower(functionHeader), string(fn.Marshal(f)))
}

func payload(n int) *testgrpc.Payload { return &testgrpc.Payload{Body: make([]byte, n)} }

func wantUnary(ctx context.Context, t *testing.T, calls testgrpc.TestServiceClient) {
	var header metadata.MD
	got, err := calls.UnaryCall(ctx, &testgrpc.SimpleRequest{ResponseSize: 300_000, Payload: payload(200_000)}, grpc.Header(&header))
	if err != nil || len(got.GetPayload().GetBody()) != 300_000 {
		t.Errorf("%d bytes, %v, header %v", len(got.GetPayload().GetBody()), err, header)
	}
	if len(header.Get("x-echo-uid")) != 1 {
		t.Errorf("metadata of the pod is lost: %v", header)
	}
}

// wantStatus: a gRPC status of the function is no error of Skipper's.
func wantStatus(ctx context.Context, t *testing.T, calls testgrpc.TestServiceClient) {
	var trailer metadata.MD
	asked := &testgrpc.EchoStatus{Code: int32(codes.ResourceExhausted), Message: "as asked"}
	_, err := calls.UnaryCall(ctx, &testgrpc.SimpleRequest{ResponseStatus: asked}, grpc.Trailer(&trailer))
	if s := status.Convert(err); s.Code() != codes.ResourceExhausted || s.Message() != "as asked" || len(trailer.Get(reason.Header)) != 0 {
		t.Errorf("status %v, trailer %v", s, trailer)
	}
}

func wantPingPong(ctx context.Context, t *testing.T, calls testgrpc.TestServiceClient) {
	stream, err := calls.FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for size := range int32(20) {
		ask := &testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: size}}, Payload: payload(1)}
		if err := stream.Send(ask); err != nil {
			t.Fatal(err)
		}
		got, err := stream.Recv()
		if err != nil || len(got.GetPayload().GetBody()) != int(size) {
			t.Fatalf("asked for %d bytes, got %v, %v", size, got, err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("end of the stream: %v", err)
	}
}

func wantServerStream(ctx context.Context, t *testing.T, calls testgrpc.TestServiceClient) {
	sizes := []*testgrpc.ResponseParameters{{Size: 1}, {Size: 100_000}, {Size: 0}}
	stream, err := calls.StreamingOutputCall(ctx, &testgrpc.StreamingOutputCallRequest{ResponseParameters: sizes})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range sizes {
		got, err := stream.Recv()
		if err != nil || len(got.GetPayload().GetBody()) != int(want.GetSize()) {
			t.Fatalf("want %d bytes, got %d, %v", want.GetSize(), len(got.GetPayload().GetBody()), err)
		}
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("end of the stream: %v", err)
	}
}

func wantClientStream(ctx context.Context, t *testing.T, calls testgrpc.TestServiceClient) {
	stream, err := calls.StreamingInputCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 100_000, 0} {
		if err := stream.Send(&testgrpc.StreamingInputCallRequest{Payload: payload(n)}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := stream.CloseAndRecv(); err != nil || got.GetAggregatedPayloadSize() != 100_001 {
		t.Errorf("got %v, %v", got, err)
	}
}
