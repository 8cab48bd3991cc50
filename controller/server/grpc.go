package server

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	skipperpb "skipper/proto"
	"skipper/proto/reason"
)

// maxMessage is the largest message taken: a heartbeat of the most functions
// that a router may report.
const maxMessage = 8 << 20

// NewGRPC makes a gRPC server that counts its calls and survives their panics,
// with options beside ours (those of xds/server for keepalive and age).
func NewGRPC(logger *zap.Logger, r prometheus.Registerer, options ...grpc.ServerOption) *grpc.Server {
	w := &watcher{logger: logger, panics: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "skipper_controller_grpc_panics_total",
		Help: "Calls that ended in a panic; any is a bug.",
	}), calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "skipper_controller_grpc_seconds",
		Help:    "Time that unary calls took, by method and status code. A GetInstance of a cold function waits for its pod.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
	}, []string{"method", "code"}), streams: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "skipper_controller_grpc_streams_total",
		Help: "Streams that have ended, by method and status code.",
	}, []string{"method", "code"})}
	r.MustRegister(w.panics, w.calls, w.streams)
	return grpc.NewServer(append([]grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.UnaryInterceptor(w.unary),
		grpc.StreamInterceptor(w.stream),
	}, options...)...)
}

// Register adds the service, health and reflection. The health returned is not
// serving until it is told so.
func (s *Server) Register(g *grpc.Server) *health.Server {
	skipperpb.RegisterControllerServiceServer(g, s)
	h := health.NewServer()
	SetServing(h, false)
	healthpb.RegisterHealthServer(g, h)
	reflection.Register(g)
	return h
}

// SetServing tells health checks, of the whole and of the service.
func SetServing(h *health.Server, serving bool) {
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		state = healthpb.HealthCheckResponse_SERVING
	}
	h.SetServingStatus("", state)
	h.SetServingStatus(skipperpb.ControllerService_ServiceDesc.ServiceName, state)
}

// watcher sees every call. Methods are label values: only registered ones get
// this far, so they are bounded.
type watcher struct {
	logger  *zap.Logger
	panics  prometheus.Counter
	calls   *prometheus.HistogramVec
	streams *prometheus.CounterVec
}

func (w *watcher) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	start := time.Now()
	defer func() {
		err = w.recovered(recover(), info.FullMethod, err)
		w.calls.WithLabelValues(info.FullMethod, status.Code(err).String()).Observe(time.Since(start).Seconds())
	}()
	return next(ctx, req)
}

func (w *watcher) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() {
		err = w.recovered(recover(), info.FullMethod, err)
		w.streams.WithLabelValues(info.FullMethod, status.Code(err).String()).Inc()
	}()
	return next(srv, stream)
}

// recovered turns a panic into an error; without one err stays.
func (w *watcher) recovered(cause any, method string, err error) error {
	if cause == nil {
		return err
	}
	w.panics.Inc()
	w.logger.Error("call panicked", zap.String("method", method), zap.Any("panic", cause), zap.ByteString("stack", debug.Stack()))
	return reason.Error(codes.Internal, reason.Internal, "internal fault of the controller: see its log")
}
