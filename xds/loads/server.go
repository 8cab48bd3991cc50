package loads

import (
	"context"
	"sync"
	"time"

	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"skipper/xds"
)

// Stream is one load reporting stream of an Envoy.
type Stream struct {
	// Node is Envoy's node id.
	Node string
	// ID differs between all streams of a Server, later ones have higher ones.
	ID uint64
}

// Sink learns what is reported. Its methods must be quick; calls about one
// stream follow each other, those about different streams may be concurrent.
type Sink interface {
	// Reported replaces what the stream said before. The slice is the sink's.
	Reported(s Stream, received time.Time, busy []Busy)
	// Ended comes last, and only for a stream that has reported.
	Ended(s Stream)
}

// Interval is how often Envoys report.
const Interval = time.Second

// Defaults of Options.
const (
	// DefaultMaxStreams is what the heartbeat store takes of routers.
	DefaultMaxStreams = 1_024
	// DefaultSilentAfter is far above Interval: an Envoy may be busy with its
	// first world.
	DefaultSilentAfter = 30 * time.Second
)

// Options of a Server.
type Options struct {
	// Sink is required.
	Sink Sink
	// Shards of each cluster family; 0 is xds.DefaultShards.
	Shards int
	// MaxStreams bounds the streams; 0 is DefaultMaxStreams.
	MaxStreams int
	// SilentAfter ends a stream that says nothing for so long, so that its
	// Envoy begins another; 0 is DefaultSilentAfter.
	SilentAfter time.Duration
	// Logger; nil logs nothing.
	Logger *zap.Logger
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
}

func (o Options) withDefaults() Options {
	if o.Shards == 0 {
		o.Shards = xds.DefaultShards
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = DefaultMaxStreams
	}
	if o.SilentAfter == 0 {
		o.SilentAfter = DefaultSilentAfter
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	o.Logger = o.Logger.Named("loads")
	return o
}

// Server is the load reporting service of one controller replica. It is safe
// for concurrent use. Use New; end with Close.
type Server struct {
	loadstatsv3.UnimplementedLoadReportingServiceServer

	opts    Options
	names   names
	metrics *metrics
	running sync.WaitGroup // stream handlers and their goroutines

	mu      sync.Mutex
	phase   phase
	refusal string        // why streams are refused
	opened  chan struct{} // closed when phase leaves waiting
	last    uint64        // id of the newest stream
	streams map[*stream]struct{}
}

// phase of a server's life.
type phase int

const (
	waiting phase = iota // streams wait
	open                 // streams are served
	held                 // streams are refused
	shut                 // streams are refused for good
)

// stream is one client. Its node belongs to the receiving goroutine.
type stream struct {
	Stream
	reported bool          // as Node
	beat     chan struct{} // size 1: something was received
	closed   chan error    // size 1: why the server ends it; the first reason wins
}

// New returns a server that lets streams wait until Open: before the pods are
// known, reports cannot be understood.
func New(o Options) *Server {
	o = o.withDefaults()
	return &Server{
		opts: o, names: clusterNames(o.Shards), metrics: newMetrics(o.Registerer),
		opened: make(chan struct{}), streams: map[*stream]struct{}{},
	}
}

// Register adds the service to a gRPC server, which should be built with
// ServerOptions of package server.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	loadstatsv3.RegisterLoadReportingServiceServer(r, s)
}

// Open lets streams in; it also ends Hold, but not Close.
func (s *Server) Open() { s.enter(open, "") }

// Hold ends all streams and refuses new ones, so that Envoys go to another
// replica. The reason is told to them.
func (s *Server) Hold(reason string) { s.enter(held, reason) }

// Close holds the server for good and waits until no stream is left; the sink
// has heard of the end of each then.
func (s *Server) Close() {
	s.enter(shut, "shutting down")
	s.running.Wait()
}

func (s *Server) enter(next phase, refusal string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == shut {
		return
	}
	if s.phase == waiting {
		close(s.opened)
	}
	s.phase, s.refusal = next, refusal
	if next == open {
		return
	}
	for st := range s.streams {
		st.close(s.heldLocked())
	}
}

func (s *Server) heldLocked() error {
	return status.Errorf(codes.Unavailable, "this replica takes no load reports now (%s): use another", s.refusal)
}

// join waits until streams are served, and counts the caller until leave.
func (s *Server) join(ctx context.Context) (*stream, error) {
	select {
	case <-s.opened:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.phase >= held:
		s.metrics.refused.WithLabelValues(refusedHeld).Inc()
		return nil, s.heldLocked()
	case len(s.streams) >= s.opts.MaxStreams:
		s.metrics.refused.WithLabelValues(refusedTooMany).Inc()
		return nil, status.Errorf(codes.ResourceExhausted, "%d load reporting streams are open, which is the most: use another replica", len(s.streams))
	}
	s.last++
	st := &stream{Stream: Stream{ID: s.last}, beat: make(chan struct{}, 1), closed: make(chan error, 1)}
	s.streams[st] = struct{}{}
	s.running.Add(1)
	s.metrics.envoys.Inc()
	return st, nil
}

func (s *Server) leave(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st)
	s.metrics.envoys.Dec()
	s.running.Done()
}

func (st *stream) close(err error) {
	select {
	case st.closed <- err:
	default:
	}
}
