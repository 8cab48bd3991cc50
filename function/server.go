package function

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
)

// Server is how a function listens and how it stops. It is a value; each call of Serve stands alone.
type Server struct {
	// Listen is the TCP address, such as ":8080".
	Listen string
	// IdleTimeout closes a connection on which nothing was asked for so long; 0 never does. It must be longer than
	// the proxy's own (4 s), or a request is sent into a connection that is just closing.
	IdleTimeout time.Duration
	// StopDelay is how long new requests are taken after the order to stop, whatever happens: the time that
	// the news needs to reach every proxy. 0 is none.
	StopDelay time.Duration
	// Grace is how long, from the order to stop, requests in progress may go on. It includes StopDelay and must be
	// shorter than the pod's terminationGracePeriodSeconds (Kubernetes: 30 s). What is left then is cut.
	Grace time.Duration
	// Logger gets what net/http has to say, such as a handler's panic; nil is silent.
	Logger *zap.Logger
}

const (
	// headerTimeout bounds how long a client may take to send its header.
	headerTimeout = 10 * time.Second
	// maxHeaderBytes is about twice what Envoy passes on by default (60 KiB).
	maxHeaderBytes = 128 << 10
	// maxStreams is per HTTP/2 connection; a proxy has few connections with many requests on each.
	maxStreams = 1000
	// cutWait is how long handlers may take to notice that their request was cut.
	cutWait = time.Second
)

// DefaultServer listens on :8080, keeps idle connections for 75 s, and stops within 25 s.
func DefaultServer() Server {
	return Server{Listen: ":8080", IdleTimeout: 75 * time.Second, StopDelay: 3 * time.Second, Grace: 25 * time.Second}
}

// Serve makes a Pod of cfg, listens, and answers with h behind Pod.Handler until ctx ends. Authors who want to see
// the assignment set OnAssign, or use New and Server.Serve.
func Serve(ctx context.Context, cfg Config, h http.Handler) error {
	pod, err := New(cfg)
	if err != nil {
		return err
	}
	server := cfg.Server
	if server.Logger == nil {
		server.Logger = cfg.Logger
	}
	return server.ListenAndServe(ctx, pod.Handler(h))
}

// ListenAndServe is Serve on the address of Listen.
func (s Server) ListenAndServe(ctx context.Context, h http.Handler) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", s.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", s.Listen, err)
	}
	return s.Serve(ctx, ln, h)
}

// Serve answers HTTP/1.1 and HTTP/2 without TLS on ln, which it closes, until ctx ends; then it goes on as StopDelay
// and Grace say, and returns nil if nothing had to be cut. Contexts of requests do not end with ctx, only when the
// client leaves or the request is cut. All goroutines of the server have ended on return, and all handlers that
// heed their context.
func (s Server) Serve(ctx context.Context, ln net.Listener, h http.Handler) error {
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	busy := newTracker()
	srv := s.httpServer(base, busy.track(h))
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	select {
	case err := <-ended:
		s.cut(srv, cut, busy) //nolint:contextcheck // ctx is over: what is cut has a bound of its own
		return fmt.Errorf("serve on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	err := s.stop(base, srv, busy)
	if err != nil {
		s.cut(srv, cut, busy) //nolint:contextcheck // ctx is over: what is cut has a bound of its own
	}
	<-ended //nolint:errcheck // Serve ends with ErrServerClosed by now
	return err
}

func (s Server) httpServer(base context.Context, h http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{
		Handler:           h,
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       s.IdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return base },
	}
	log := s.Logger
	if log == nil {
		log = zap.NewNop()
	}
	srv.ErrorLog = zap.NewStdLog(log)
	return srv
}

// stop ends the server once it is idle. Its error says that requests are left when Grace is over.
func (s Server) stop(base context.Context, srv *http.Server, busy *tracker) error {
	ctx, cancel := context.WithTimeout(base, s.Grace)
	defer cancel()
	busy.drain(ctx, s.StopDelay)
	// Shutdown does not know of hijacked connections (WebSocket), the tracker does.
	err := srv.Shutdown(ctx)
	if err == nil {
		err = busy.wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("stop within %s: %d requests cut: %w", s.Grace, busy.inFlight(), err)
	}
	return nil
}

// cut ends what is left and gives the handlers a moment to notice.
func (s Server) cut(srv *http.Server, cut context.CancelFunc, busy *tracker) {
	// Connections first: a handler that returns because its context has ended
	// would otherwise give its client an empty answer in good order.
	_ = srv.Close() // its error is that of a listener or connection that nobody wants any more
	cut()
	ctx, cancel := context.WithTimeout(context.Background(), cutWait)
	defer cancel()
	_ = busy.wait(ctx) // a handler that ignores its context cannot be helped
}
