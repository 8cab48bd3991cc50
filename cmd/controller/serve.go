package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"skipper/controller/server"
	"skipper/controller/web"
)

// publish waits for the informers and publishes the first world; then the
// controller joins the ring and is ready.
func (p *process) publish(ctx, background context.Context) error {
	if !p.synced(ctx) {
		return nil
	}
	return p.publisher.Run(background, func() {
		if ctx.Err() != nil {
			return
		}
		p.hearing.Begin(time.Now())
		p.setServing(true) //nolint:contextcheck // connections to peers end with the peers
		p.lrs.Open()
		server.SetServing(p.health, true)
		p.ready.is.Store(true)
		p.logger.Info("ready", zap.Duration("after", time.Since(p.policy.StartedAt)))
	})
}

// supervise adopts what the informers have found.
func (p *process) supervise(ctx context.Context) error {
	if !p.synced(ctx) {
		return nil
	}
	defer p.view.Listen(p.supervisors.Observe)()
	return p.supervisors.Run(ctx)
}

// synced waits for the informers; false when ctx ended first, which is a stop
// during the start.
func (p *process) synced(ctx context.Context) bool {
	err := p.watch.WaitSynced(ctx)
	if err != nil {
		p.logger.Info("stopped before the informers had synced", zap.Error(err))
	}
	return err == nil
}

// stopServing takes the controller off the ring and out of use, and returns when no call is left
// or their time is over. Streams of xDS and load reports never end by themselves: they are closed
// first, so that Envoys and extprocs go to another replica at once.
func (p *process) stopServing() {
	p.ready.is.Store(false)
	p.setServing(false)
	p.health.Shutdown()
	hard := time.AfterFunc(p.callGrace(), p.grpc.Stop)
	defer hard.Stop()
	p.lrs.Close()
	p.gate.close()
	p.xds.Close()
	p.grpc.GracefulStop()
}

// serveGRPC serves until stopServing, which may come first.
func (p *process) serveGRPC(l net.Listener) error {
	if err := p.grpc.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// readiness is true from the first published world until the stop.
type readiness struct{ is atomic.Bool }

func (r *readiness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if !r.is.Load() {
		http.Error(w, "not ready: pods and ReplicaSets are not all known yet, or the controller is stopping", http.StatusServiceUnavailable)
		return
	}
	alive(w, nil)
}

func alive(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) } // a client that left needs no answer

// serveWeb serves metrics and probes until ctx ends.
func (p *process) serveWeb(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{Registry: p.registry}))
	mux.HandleFunc("GET /healthz", alive)
	mux.Handle("GET /readyz", &p.ready)
	if p.WebUI {
		web.New(p.state.ClusterState).Register(mux)
	}
	s := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, // streams of package web set their own
	}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
