package main

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"skipper/proto/tracing"
)

// leastFlush is what the last spans get even where the shutdown timeout is over.
const leastFlush = 100 * time.Millisecond

// openTracing makes the exporter of spans, which is off by default.
func (p *process) openTracing(ctx context.Context) error {
	e, err := tracing.Open(context.WithoutCancel(ctx), tracing.Options{
		Service: "skipper-controller", Instance: p.PodIP, Endpoint: p.OTLPEndpoint, Lookup: os.LookupEnv, Logger: p.logger,
	})
	p.tracing = e
	return err
}

// tracedServer and tracedClient carry spans in and on to other replicas.
func (p *process) tracedServer() []grpc.ServerOption {
	if t := p.tracing.Tracer(); t != nil {
		return []grpc.ServerOption{grpc.ChainUnaryInterceptor(tracing.ServerInterceptor(t))}
	}
	return nil
}

func (p *process) tracedClient() []grpc.DialOption {
	if p.tracing.Tracer() != nil {
		return []grpc.DialOption{grpc.WithChainUnaryInterceptor(tracing.ClientInterceptor())}
	}
	return nil
}

// stopTime is when the process was told to stop. Safe for concurrent use.
type stopTime struct{ at atomic.Pointer[time.Time] }

func (s *stopTime) store() {
	now := time.Now()
	s.at.Store(&now)
}

func (s *stopTime) load() time.Time {
	if at := s.at.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// flushSpans sends the last spans in what is left of the shutdown timeout since
// stopped; zero: the process was not told to stop.
func (p *process) flushSpans(ctx context.Context, stopped time.Time) {
	left := p.ShutdownTimeout
	if !stopped.IsZero() {
		left -= time.Since(stopped)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(left, leastFlush))
	defer cancel()
	if err := p.tracing.Close(ctx); err != nil {
		p.logger.Warn("spans are lost", zap.Error(err))
	}
}
