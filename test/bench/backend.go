package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"skipper/test/bench/rival"
)

// serveBackend answers every request with one small text, as the pod behind
// every contestant, but for those that are to be held.
func serveBackend(ctx context.Context, addr string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello\n") // a client that left does not matter here
	})
	newHeldBackend().register(mux)
	return serve(ctx, addr, mux)
}

// serveRival routes to the instances that the controller names.
func serveRival(ctx context.Context, addr, controller string, transport http.RoundTripper) error {
	conn, err := grpc.NewClient(controller, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, addr, rival.Handler(conn, transport)), conn.Close())
}

// serve runs an HTTP server until ctx is done.
func serve(ctx context.Context, addr string, h http.Handler) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, Protocols: &http.Protocols{}}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
