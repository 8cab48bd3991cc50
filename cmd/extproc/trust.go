package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"skipper/proto/identity"
)

func (c *config) addTrustFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.tls.Cert, "tls-cert-file", "", "PEM `file` of our certificate, role extproc, for the controllers; read again when it changes")
	fs.StringVar(&c.tls.Key, "tls-key-file", "", "PEM `file` of its key")
	fs.StringVar(&c.tls.CA, "tls-ca-file", "", "PEM `file` of the authorities that sign for the controllers")
	fs.BoolVar(&c.plaintext, "insecure-plaintext", c.plaintext, "speak to the controllers without TLS, as they must do too")
}

// openTrust is how the controllers are spoken to. The identity is nil without
// TLS; else it must be run.
func openTrust(c *config, log *zap.Logger, r prometheus.Registerer) (credentials.TransportCredentials, *identity.Identity, error) {
	if c.plaintext {
		log.Warn("speaking to the controllers without TLS: whoever is in between may steer every tenant's requests")
		return insecure.NewCredentials(), nil, nil
	}
	i, err := identity.Open(identity.Options{Files: c.tls, Role: identity.Extproc, Logger: log, Registerer: r})
	if err != nil {
		return nil, nil, err
	}
	return i.Client(identity.Controller), i, nil
}
