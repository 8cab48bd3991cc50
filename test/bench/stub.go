package main

import (
	"context"
	"net"

	"google.golang.org/grpc"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
	"skipper/xds/resource"
	"skipper/xds/server"
)

// stubUID is the pod UID of the one instance.
const stubUID = "00000000-0000-4000-8000-000000000001"

// stub is a controller that knows one ready instance of every function: the
// backend. The warm path never asks it; the rivals ask it for each request.
type stub struct {
	skipperpb.UnimplementedControllerServiceServer
	addr string
}

func (s stub) instance(f *skipperpb.Function) *skipperpb.Instance {
	return &skipperpb.Instance{
		Function: f, Name: "backend", Addr: s.addr, Uid: stubUID, Version: 1,
		Cluster: xds.ClusterOf(xds.HTTP1, stubUID, xds.DefaultShards),
	}
}

func (s stub) GetInstance(_ context.Context, r *skipperpb.GetInstanceRequest) (*skipperpb.GetInstanceResponse, error) {
	return &skipperpb.GetInstanceResponse{Instance: s.instance(r.GetFunction())}, nil
}

func (s stub) Heartbeat(context.Context, *skipperpb.HeartbeatRequest) (*skipperpb.HeartbeatResponse, error) {
	return &skipperpb.HeartbeatResponse{}, nil
}

// Instances answers extproc's subscriptions with the same instance.
func (s stub) Instances(name string) (*skipperpb.FunctionInstances, bool) {
	return resource.Instances(name, []*skipperpb.Instance{s.instance(benchFunction())}, 1), true
}

// benchFunction is what the warm load calls.
func benchFunction() *skipperpb.Function {
	return &skipperpb.Function{Namespace: "functions", Deployment: "bench", Tenant: "bench", Scale: &skipperpb.Scale{MaxInstances: 10}}
}

func benchHeader() string { return "X-Skipper-Function: " + string(fn.Marshal(benchFunction())) }

// serveController runs the stub until ctx is done.
func serveController(ctx context.Context, addr, backend string) error {
	s := stub{addr: backend}
	x := server.New(server.Options{Source: s})
	x.Apply(server.Change{Upsert: []resource.Endpoint{{UID: stubUID, Addr: backend, Protocol: xds.HTTP1}}})
	x.Open()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	g := grpc.NewServer(server.ServerOptions()...)
	x.Register(g)
	skipperpb.RegisterControllerServiceServer(g, s)
	stop := context.AfterFunc(ctx, g.Stop)
	defer stop()
	defer x.Close()
	return g.Serve(l)
}
