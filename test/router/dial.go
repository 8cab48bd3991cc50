package router

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	skipperpb "skipper/proto"
)

// Dial prepares a connection to the controllers at these addresses, in plain
// text.
func Dial(addrs ...string) (*grpc.ClientConn, error) {
	return DialWith(insecure.NewCredentials(), addrs...)
}

// DialWith is Dial with credentials.
func DialWith(creds credentials.TransportCredentials, addrs ...string) (*grpc.ClientConn, error) {
	r := manual.NewBuilderWithScheme("controllers")
	var state resolver.State
	for _, a := range addrs {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: a})
	}
	r.InitialState(state)
	conn, err := grpc.NewClient("controllers:///all", grpc.WithResolvers(r),
		grpc.WithDefaultServiceConfig(skipperpb.ServiceConfig), grpc.WithTransportCredentials(creds))
	if err != nil {
		return nil, fmt.Errorf("prepare connection to %v: %w", addrs, err)
	}
	return conn, nil
}
