package echo

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/reflection"
)

// newGRPC returns a server of grpc.testing.TestService (gRPC's own interoperability service: every kind of call,
// metadata repeated, given status), health and reflection. It serves through ServeHTTP, so it has no listener.
func newGRPC() *grpc.Server {
	server := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
	healthgrpc.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)
	return server
}
