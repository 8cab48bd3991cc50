package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"skipper/extproc/drain"
)

// listenLifecycle opens the port of the preStop hooks; nil without one.
func listenLifecycle(ctx context.Context, cfg *config) (net.Listener, error) {
	if cfg.lifecyclePort == 0 {
		return nil, nil //nolint:nilnil // none is asked for
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(cfg.webHost, strconv.Itoa(int(cfg.lifecyclePort))))
	if err != nil {
		return nil, fmt.Errorf("listen for preStop hooks: %w", err)
	}
	return l, nil
}

// serveLifecycle answers preStop hooks until ctx ends. Whoever reaches it can
// take the gateway out of service, so no NetworkPolicy lets any pod in: the
// kubelet needs none.
func (p *process) serveLifecycle(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("/drain", drain.New(p.cfg.envoyAdmin, p.log.Named("drain")))
	s := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	unhook := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer unhook()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve preStop hooks: %w", err)
	}
	return nil
}
