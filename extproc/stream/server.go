// Package stream answers Envoy's external processing streams: one stream per
// HTTP request, open for as long as the request lives, and one more for each time
// that Envoy could not deliver it where it was told to.
//
// A stream goes through explicit phases. Its request headers are answered with
// an instance, at once if the table has one and after a wait in the hall if not,
// or with a refusal. From then on it only waits for its end. An end by EOF says
// that the request is over, whatever its end was: the count is lowered and the
// pod of a oneshot is released. Any other end says nothing about the request: the
// count stays raised as a lease, and a oneshot is left to the controller.
//
// A later stream finds its request by the request id and is answered with one
// instance, too: the same one if Envoy has not heard of it yet, another one if it
// failed. The request keeps one lease, which moves along, and belongs to the first
// stream; the end of a later one means nothing.
package stream

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	skipperpb "skipper/proto"

	"skipper/extproc/hold"
	"skipper/extproc/metrics"
	"skipper/extproc/table"
	"skipper/extproc/trust"
	"skipper/extproc/wire"
)

// ServiceName is that of Envoy's external processing service.
const ServiceName = "envoy.service.ext_proc.v3.ExternalProcessor"

// Options of a Server. All are required but Tracer.
type Options struct {
	// Trust reads the header that names the function.
	Trust   *trust.Gate
	Table   *table.Table
	Hall    *hold.Hall
	Metrics *metrics.Metrics
	Logger  *zap.Logger
	// Tracer gives cold starts a span each; nil gives none.
	Tracer trace.Tracer
	// Release takes the instance of a oneshot whose request is over. It must not
	// block.
	Release func(*skipperpb.Instance)
	// HoldTimeout is how long a request waits at most (contract: 30 s).
	HoldTimeout time.Duration
	// LostLease is how long the count of a lost stream stays raised.
	LostLease time.Duration
	// Attempts bounds how often one request is sent to an instance, and how often
	// it is made to wait anew (contract: --max-round-trip-attempts, 6).
	Attempts int
	// Backoff and MaxBackoff are the pauses before an instance is tried again that
	// Envoy did not know (100 ms and 5 s).
	Backoff, MaxBackoff time.Duration
	// Quarantine is how long an instance is avoided that two requests in that time
	// did not reach (contract: 10 s).
	Quarantine time.Duration
}

// Server answers streams. Safe for concurrent use.
type Server struct {
	opts Options
	ids  wire.RequestIDs

	register register

	drains chan struct{} // closed: the process stops
	hurry  chan struct{} // closed: waiting requests are refused
	once   [2]sync.Once
	beside sync.WaitGroup // receives that run beside a wait
	held   gate           // requests that wait
}

// NewServer returns a server; register it with Register.
func NewServer(o Options) *Server {
	return &Server{opts: o, held: newGate(), drains: make(chan struct{}), hurry: make(chan struct{})}
}

// Register adds the service to g, which must use wire.Codec.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: ServiceName,
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: "Process", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, ss grpc.ServerStream) error { return s.Process(ss) },
		}},
		Metadata: "envoy/service/ext_proc/v3/external_processor.proto",
	}, s)
}

// Process serves one stream.
func (s *Server) Process(ss grpc.ServerStream) error {
	x := &session{server: s, stream: ss}
	defer x.finish()
	for {
		if err := x.receive(); err != nil {
			return x.ended(err)
		}
		answering := x.phase == awaitsHeaders
		reply := x.dispatch()
		if reply == nil {
			continue
		}
		if err := x.send(reply); err != nil {
			x.undelivered = answering
			return x.ended(err)
		}
	}
}

// Drain waits until no request waits for an instance any more; when ctx ends
// first, those that still wait are refused, and so are later ones that would have
// to. Streams whose request was sent to a pod are not touched. New streams are
// still served, because Envoy opens some until it has read that it is to connect
// anew, and would answer 503 if they were refused.
func (s *Server) Drain(ctx context.Context) {
	s.once[0].Do(func() { close(s.drains) })
	unhook := context.AfterFunc(ctx, func() { s.once[1].Do(func() { close(s.hurry) }) })
	defer unhook()
	<-s.held.emptied()
}

// Wait returns when nothing that the server started runs any more; the streams
// must have ended.
func (s *Server) Wait() { s.beside.Wait() }

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
