// Package echo is the example function's answers: what a caller sent, given back in each way in which HTTP can give
// something back, so that a test or a curious person can see what a pod sees.
//
// Beside that it uses CPU, memory and time as a request asks for, so that scaling can be seen.
//
// It holds no state of its own beyond the gRPC server, never keeps a body in memory, and knows nothing of tokens:
// who may ask is decided in front of it by the package function.
package echo

import (
	"net/http"
	"strings"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"skipper/function"
)

// Response headers that every answer carries, gRPC's included.
const (
	HeaderPod    = "X-Echo-Pod"
	HeaderUID    = "X-Echo-Uid"
	HeaderTenant = "X-Echo-Tenant"
)

// member is what the answers ask about the pod they come from.
type member interface {
	Assigned() (function.Assignment, bool)
}

// Config is what New needs. All fields but Crash are required.
type Config struct {
	// PodName and PodUID are shown while the pod has no assignment.
	PodName, PodUID string
	Pod             member
	// Crash ends the process at once for /crash; nil answers 403 there.
	Crash func()
	Log   *zap.Logger
}

// Server answers requests. It is an http.Handler, safe for concurrent use.
type Server struct {
	cfg    Config
	log    *zap.Logger
	grpc   *grpc.Server
	routes map[string]http.HandlerFunc
}

// New returns a Server; Close it when it is no longer used.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, log: cfg.Log.Named("echo"), grpc: newGRPC()}
	s.routes = map[string]http.HandlerFunc{
		"/echo":     s.serveBody,
		"/upload":   s.serveUpload,
		"/download": s.serveDownload,
		"/stream":   s.serveChunks,
		"/sse":      s.serveEvents,
		"/ws":       s.serveWebSocket,
		"/slow":     s.serveSlow,
		"/burn":     s.serveBurn,
		"/hold":     s.serveHold,
		"/trailers": s.serveTrailers,
		"/421":      serveOwn421,
		"/crash":    s.serveCrash,
	}
	return s
}

// Close ends the gRPC server and waits for its calls.
func (s *Server) Close() { s.grpc.Stop() }

// ServeHTTP gives gRPC requests to the gRPC server, a path that has a route to it, and any other to the JSON echo.
// Paths are taken as they come: none is cleaned or redirected.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.sign(w.Header())
	s.log.Debug("request", zap.String("method", r.Method), zap.String("path", r.URL.Path), zap.String("proto", r.Proto))
	route, known := s.routes[r.URL.Path]
	switch {
	case isGRPC(r):
		s.grpc.ServeHTTP(w, r)
	case known:
		route(w, r)
	case strings.HasPrefix(r.URL.Path, "/status/"):
		serveStatus(w, r)
	default:
		s.serveEcho(w, r)
	}
}

// sign puts the pod's name on the answer.
func (s *Server) sign(h http.Header) {
	a := s.assignment()
	h.Set(HeaderPod, a.PodName)
	h.Set(HeaderUID, a.PodUID)
	if a.Tenant() != "" {
		h.Set(HeaderTenant, a.Tenant())
	}
}

// assignment is the pod's, or one without a function while there is none.
func (s *Server) assignment() function.Assignment {
	if a, ok := s.cfg.Pod.Assigned(); ok {
		return a
	}
	return function.Assignment{PodName: s.cfg.PodName, PodUID: s.cfg.PodUID}
}

func isGRPC(r *http.Request) bool {
	return r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}
