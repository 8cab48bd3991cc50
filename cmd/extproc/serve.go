package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"skipper/extproc/stream"
	"skipper/extproc/wire"
)

// Sizes of the gRPC server. Messages are a few hundred bytes, and Envoy sends one
// or two per stream: fixed windows spare the pings by which gRPC measures
// bandwidth, and one connection holds all streams of an Envoy worker.
const (
	streamWindow = 64 << 10
	connWindow   = 4 << 20
	// maxMessage is far above the headers that Envoy forwards.
	maxMessage = 1 << 20
	// streamWorkers keep their grown stacks for the next stream; streams beyond
	// them get goroutines of their own.
	streamWorkers = 128
	// minPing is below any interval at which Envoy is set to ping.
	minPing = time.Second
)

func newGRPCServer(s *stream.Server) *grpc.Server {
	g := grpc.NewServer(
		grpc.ForceServerCodecV2(wire.NewCodec()),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
	)
	s.Register(g)
	healthpb.RegisterHealthServer(g, health.NewServer())
	return g
}

// readiness is true from the first contact with a synced controller until the
// process stops. A controller that goes away later changes nothing: warm
// requests go on. The zero value is not ready; safe for concurrent use.
type readiness struct{ synced, stopping atomic.Bool }

func (r *readiness) set(synced bool) {
	if synced {
		r.synced.Store(true)
	}
}

func (r *readiness) stop() { r.stopping.Store(true) }

func (r *readiness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	switch {
	case r.stopping.Load():
		http.Error(w, "stopping", http.StatusServiceUnavailable)
	case !r.synced.Load():
		http.Error(w, "no controller reached yet", http.StatusServiceUnavailable)
	default:
		_, _ = io.WriteString(w, "ok\n") // a client that left needs no answer
	}
}

func (p *process) serveWeb(ctx context.Context, ln net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /readyz", p.ready)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n") // a client that left needs no answer
	})
	return serveHTTP(ctx, ln, mux, "/metrics")
}

// serveHTTP serves until ctx ends, and ends the requests with it.
func serveHTTP(ctx context.Context, ln net.Listener, h http.Handler, what string) error {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	unhook := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer unhook()
	if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", what, err)
	}
	return nil
}

func newLogger(level, format string) (*zap.Logger, error) {
	l, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("read log level: %w", err)
	}
	c := zap.NewProductionConfig()
	c.Level, c.Encoding, c.Sampling = zap.NewAtomicLevelAt(l), format, nil
	c.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	c.EncoderConfig.EncodeDuration = zapcore.StringDurationEncoder
	log, err := c.Build()
	if err != nil {
		return nil, fmt.Errorf("build logger: %w", err)
	}
	return log.Named("extproc"), nil
}
