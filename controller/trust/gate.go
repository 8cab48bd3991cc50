package trust

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"skipper/proto/identity"
)

// Gate checks connections and calls. Use New; safe for concurrent use.
type Gate struct {
	identity *identity.Identity
	methods  map[string][]identity.Role
	types    map[string][]identity.Role
	log      *quiet
	metrics  *metrics
}

// New returns a gate. Refusals are logged through logger and counted by r.
func New(i *identity.Identity, logger *zap.Logger, r prometheus.Registerer) *Gate {
	return &Gate{identity: i, methods: methods(), types: types(), log: newQuiet(logger), metrics: newMetrics(r)}
}

// ServerOptions make a gRPC server demand certificates and pass each call
// through the gate, behind interceptors that are set on their own.
func (g *Gate) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(g.identity.Server(g.refused)),
		grpc.ChainUnaryInterceptor(g.unary),
		grpc.ChainStreamInterceptor(g.stream),
	}
}

func (g *Gate) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if _, err := g.admit(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (g *Gate) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	role, err := g.admit(s.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	return next(srv, &typedStream{s, g, role})
}

// admit returns the caller's role, or the refusal.
func (g *Gate) admit(ctx context.Context, method string) (identity.Role, error) {
	p, _ := peer.FromContext(ctx)
	var role identity.Role
	if p != nil {
		role, _ = identity.PeerRole(p.AuthInfo)
	}
	if slices.Contains(g.methods[method], role) {
		return role, nil
	}
	return role, g.deny(p, role, method, "a certificate of role %q may not call %s", role, method)
}

// deny counts and logs a refusal. Methods are registered ones and roles few, so
// both are bounded as labels.
func (g *Gate) deny(p *peer.Peer, role identity.Role, method, format string, args ...any) error {
	err := status.Errorf(codes.PermissionDenied, format, args...)
	g.log.warn("call refused", zap.String("method", method), zap.String("role", string(role)), zap.Stringer("from", address(p)), zap.Error(err))
	g.metrics.denied.WithLabelValues(method, string(role)).Inc()
	return err
}

func address(p *peer.Peer) net.Addr {
	if p == nil || p.Addr == nil {
		return &net.UnixAddr{}
	}
	return p.Addr
}

// typedStream refuses xDS requests for a type that the role has no business with.
type typedStream struct {
	grpc.ServerStream
	gate *Gate
	role identity.Role
}

// RecvMsg leaves types that nobody knows to the server's own refusal.
func (s *typedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	r, ok := m.(*discoveryv3.DeltaDiscoveryRequest)
	if !ok {
		return nil
	}
	if roles, known := s.gate.types[r.GetTypeUrl()]; known && !slices.Contains(roles, s.role) {
		p, _ := peer.FromContext(s.Context())
		return s.gate.deny(p, s.role, discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName,
			"a certificate of role %q may not subscribe to %s", s.role, r.GetTypeUrl())
	}
	return nil
}

// refused hears of connections that came to nothing.
func (g *Gate) refused(from net.Addr, err error) {
	c := causeOf(err)
	if c != causeClosed { // a probe of the port, or a client that gave up
		g.log.warn("connection refused", zap.String("cause", c), zap.Stringer("from", from), zap.Error(err))
	}
	g.metrics.refused.WithLabelValues(c).Inc()
}

// Causes of refused connections.
const (
	causeNone      = "no_certificate"
	causeAuthority = "unknown_authority"
	causeExpired   = "expired"
	causeInvalid   = "invalid_certificate"
	causeRole      = "no_role"
	causeNotTLS    = "not_tls"
	causeClosed    = "closed_by_peer"
	causeOther     = "other"
)

// causeOf names a failed handshake.
func causeOf(err error) string {
	var (
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		wrong   *tls.CertificateVerificationError
		record  tls.RecordHeaderError
	)
	switch {
	case errors.Is(err, identity.ErrNoCertificate):
		return causeNone
	case errors.Is(err, identity.ErrRole):
		return causeRole
	case errors.As(err, &unknown):
		return causeAuthority
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return causeExpired
	case errors.As(err, &wrong):
		return causeInvalid
	case errors.As(err, &record):
		return causeNotTLS
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return causeClosed
	}
	return causeOther
}
