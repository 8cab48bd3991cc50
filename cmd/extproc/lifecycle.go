package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"

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
	return serveHTTP(ctx, l, mux, "preStop hooks")
}
