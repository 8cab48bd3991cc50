package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

// Server is how a gRPC server shows itself and demands a certificate with any
// role; what a role may do is decided per call. refused hears, on the
// connection's goroutine, of each connection that fails; nil hears nothing.
func (i *Identity) Server(refused func(from net.Addr, err error)) credentials.TransportCredentials {
	if refused == nil {
		refused = func(net.Addr, error) {}
	}
	return &serverCredentials{i, refused}
}

// Client is how a gRPC client shows itself to a server of role peer, whatever
// name or address it was dialled by.
func (i *Identity) Client(peer Role) credentials.TransportCredentials {
	return &clientCredentials{i, peer}
}

// PeerRole is the role of the other end; false on a connection that is not ours.
func PeerRole(info credentials.AuthInfo) (Role, bool) {
	t, ok := info.(credentials.TLSInfo)
	if !ok || len(t.State.PeerCertificates) == 0 {
		return "", false
	}
	r, err := RoleOf(t.State.PeerCertificates[0])
	return r, err == nil
}

type serverCredentials struct {
	identity *Identity
	refused  func(net.Addr, error)
}

func (s *serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := credentials.NewTLS(s.identity.current.Load().serverConfig()).ServerHandshake(raw)
	if err != nil {
		s.refused(raw.RemoteAddr(), err)
	}
	return conn, info, err
}

func (s *serverCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("credentials are a server's")
}

func (s *serverCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (s *serverCredentials) Clone() credentials.TransportCredentials { return s } // immutable

func (s *serverCredentials) OverrideServerName(string) error { return nil } // deprecated by gRPC, and no name is used

type clientCredentials struct {
	identity *Identity
	peer     Role
}

func (c *clientCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(c.identity.current.Load().clientConfig(c.peer)).ClientHandshake(ctx, authority, raw)
}

func (c *clientCredentials) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("credentials are a client's")
}

func (c *clientCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (c *clientCredentials) Clone() credentials.TransportCredentials { return c } // immutable

func (c *clientCredentials) OverrideServerName(string) error { return nil } // deprecated by gRPC, and no name is used

// serverConfig asks for a certificate and leaves its check to verify, which
// tells the reasons apart.
func (m *material) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{m.cert},
		ClientAuth:             tls.RequestClientCert,
		ClientCAs:              m.roots, // a hint to clients that have several certificates
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			return m.verify(s, x509.ExtKeyUsageClientAuth, Roles())
		},
	}
}

// clientConfig replaces the check of the host name, and only that, by one of
// the role: verify does the rest as the standard library does.
func (m *material) clientConfig(peer Role) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{m.cert},
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			return m.verify(s, x509.ExtKeyUsageServerAuth, []Role{peer})
		},
	}
}

// verify accepts a peer whose certificate one of our authorities has signed for
// this use, that is valid now, and that has one of the roles.
func (m *material) verify(s tls.ConnectionState, usage x509.ExtKeyUsage, allowed []Role) error {
	if len(s.PeerCertificates) == 0 {
		return ErrNoCertificate
	}
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	opts := x509.VerifyOptions{Roots: m.roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage}}
	if _, err := s.PeerCertificates[0].Verify(opts); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
	}
	return check(s.PeerCertificates[0], allowed)
}
