package server

import (
	"context"
	"slices"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"skipper/xds"
	"skipper/xds/server/internal/delta"
	"skipper/xds/server/internal/world"
)

// Server is the aggregated delta xDS server of one controller replica. It is
// safe for concurrent use. Use New; end with Close.
type Server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	opts    Options
	metrics *metrics
	running sync.WaitGroup // stream handlers and their goroutines

	applying sync.Mutex // makes Apply calls follow one another
	world    *world.World
	built    bool // Open was called; before it nothing is encoded

	mu         sync.Mutex // held over no call out of this package but the observer's
	observer   Observer
	phase      phase
	heldReason string
	opened     chan struct{} // closed when phase leaves building
	generation uint64
	tables     map[string]*table // by type URL
	order      []*table          // in which a stream is served: clusters before endpoints
	peers      map[*peer]bool
}

// phase of a server's life.
type phase int

const (
	building phase = iota // streams wait
	open                  // streams are served
	held                  // streams are refused
)

// New returns a server that lets streams wait until Open.
func New(o Options) *Server {
	o = o.withDefaults()
	s := &Server{
		opts:    o,
		metrics: newMetrics(o.Registerer),
		world:   world.New(world.Options{Shards: o.Shards, Linger: o.FamilyLinger}),
		opened:  make(chan struct{}),
		tables:  map[string]*table{},
		peers:   map[*peer]bool{},
	}
	all := delta.Rules{Wildcard: true, MaxNames: o.MaxNames}
	s.order = []*table{
		newTable(resourcev3.ClusterType, labelCluster, all, false),
		newTable(resourcev3.EndpointType, labelEndpoint, all, false),
		newTable(xds.InstancesTypeURL, labelInstances, delta.Rules{MaxNames: o.MaxNames, CheckName: checkInstancesName}, true),
	}
	for _, t := range s.order {
		s.tables[t.url] = t
	}
	return s
}

func checkInstancesName(name string) error {
	_, err := xds.ParseInstancesName(name)
	return err
}

// Register adds the aggregated discovery service to a gRPC server, which
// should be built with ServerOptions.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(r, s)
}

// StreamAggregatedResources is the form of the protocol that Skipper does not
// serve: it resends everything at each change.
func (s *Server) StreamAggregatedResources(discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return status.Error(codes.Unimplemented, "only delta xDS is served here: set api_type DELTA_GRPC")
}

// Open says that everything known has been applied. It publishes that and
// lets streams in; again after Hold, it does the same.
func (s *Server) Open() {
	s.applying.Lock()
	defer s.applying.Unlock()
	s.built = true
	s.commit(s.rebuild(time.Now()), nil)

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == building {
		close(s.opened)
	}
	s.phase = open
}

// Hold closes all streams and refuses new ones, so that clients go to another
// replica: for a replica whose knowledge is stale, and for shutdown. Apply
// goes on working, and Open ends it. The reason is told to clients.
func (s *Server) Hold(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == building {
		close(s.opened)
	}
	s.phase, s.heldReason = held, reason
	for p := range s.peers {
		s.closeLocked(p, closedHeld, s.refusalLocked())
	}
}

// Close holds the server for good and waits until no stream is left.
func (s *Server) Close() {
	s.Hold("shutting down")
	s.running.Wait()
}

func (s *Server) refusalLocked() error {
	return status.Errorf(codes.Unavailable, "this replica does not serve xDS now (%s): use another", s.heldReason)
}

// Unacknowledged are the node ids of connected subscribers of a resource that
// have not acknowledged it as of a generation that Apply returned: they may
// still act on older content. The list is sorted; a node with several streams
// may stand in it several times. None means that every subscriber knows; what
// a subscriber that is no longer connected knows is told to the Observer.
func (s *Server) Unacknowledged(typeURL, name string, generation uint64) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[typeURL]
	if t == nil {
		return nil
	}
	nodes := t.waiting(name, generation, s.peers)
	slices.Sort(nodes)
	return nodes
}

// join waits until streams are served, and counts the caller as one until leave.
func (s *Server) join(ctx context.Context) (*peer, error) {
	select {
	case <-s.opened:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == held {
		return nil, s.refusalLocked()
	}
	p := newPeer()
	s.peers[p] = true
	s.running.Add(1)
	s.metrics.streams.Inc()
	return p, nil
}

func (s *Server) leave(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.departedLocked(p)
	for url := range p.subs {
		s.tables[url].leave(p)
		s.metrics.subs.WithLabelValues(s.tables[url].label).Dec()
	}
	s.countResourcesLocked()
	delete(s.peers, p)
	s.movedLocked(s.tables[xds.InstancesTypeURL])
	close(p.left)
	s.metrics.streams.Dec()
	s.running.Done()
}

func (s *Server) countResourcesLocked() {
	for _, t := range s.order {
		s.metrics.resources.WithLabelValues(t.label).Set(float64(len(t.entries)))
	}
}
