package main

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"skipper/controller/trust"
	"skipper/proto/identity"
	xdsserver "skipper/xds/server"
)

// openTrust reads the TLS files; without TLS there is nothing to read.
func (p *process) openTrust() error {
	if p.InsecurePlaintext {
		p.logger.Warn("serving without TLS: whoever reaches the port may do everything, for every tenant")
		return nil
	}
	i, err := identity.Open(identity.Options{Files: p.TLS, Role: identity.Controller, Logger: p.logger, Registerer: p.registry})
	p.identity = i
	return err
}

// grpcOptions are those of the server.
func (p *process) grpcOptions() []grpc.ServerOption {
	options := xdsserver.ServerOptions()
	if p.identity != nil {
		options = append(options, trust.New(p.identity, p.logger.Named("trust"), p.registry).ServerOptions()...)
	}
	return append(options, p.tracedServer()...) // behind the trust: whoever is refused gets no span
}

// peerCredentials are those by which this replica calls others.
func (p *process) peerCredentials() credentials.TransportCredentials {
	if p.identity == nil {
		return insecure.NewCredentials()
	}
	return p.identity.Client(identity.Controller)
}
