package server

import (
	"errors"
	"io"
	"strconv"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	skipperpb "skipper/proto"
	"skipper/xds"
	"skipper/xds/server/internal/delta"
)

// peer is one stream. The server's lock guards what is not a channel.
type peer struct {
	node  string // node id from the first request
	nonce uint64
	subs  map[string]*delta.Subscription // by type URL
	// progress has an entry for each of subs.
	progress map[string]*progress
	// reclustered are clusters that were changed on this stream before it
	// subscribed to endpoints: Envoy needs those again, whatever it has.
	reclustered map[string]bool

	wake   chan struct{} // size 1: a reminder to look, however many reasons
	closed chan error    // size 1: why the server ends the stream; first reason wins
	left   chan struct{} // closed at the end
}

func newPeer() *peer {
	return &peer{
		subs: map[string]*delta.Subscription{}, progress: map[string]*progress{}, reclustered: map[string]bool{},
		wake: make(chan struct{}, 1), closed: make(chan error, 1), left: make(chan struct{}),
	}
}

func (p *peer) notify() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

type stream = discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer

// DeltaAggregatedResources serves one client until one of the two ends it. The
// response headers go out as soon as this replica knows the world: a client
// that has them is in touch with a synced controller.
func (s *Server) DeltaAggregatedResources(g discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	p, err := s.join(g.Context())
	if err != nil {
		return err
	}
	defer s.leave(p)
	if err := g.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	// Neither can be interrupted but by our return, which cancels the stream's
	// context; Close waits for both.
	received := s.start(func() error { return s.receive(p, g) })
	sent := s.start(func() error { return s.send(p, g) })
	return s.supervise(p, received, sent)
}

func (s *Server) start(f func() error) <-chan error {
	done := make(chan error, 1)
	s.running.Go(func() { done <- f() })
	return done
}

// supervise returns the reason for the end of the stream.
func (s *Server) supervise(p *peer, received, sent <-chan error) error {
	tick := time.NewTicker(max(s.opts.StuckAfter/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case err := <-received:
			return err
		case err := <-sent:
			return err
		case err := <-p.closed:
			return err
		case now := <-tick.C:
			s.closeIfStuck(p, now)
		}
	}
}

func (s *Server) closeIfStuck(p *peer, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for url, sub := range p.subs {
		if waited := sub.Overdue(now); waited > s.opts.StuckAfter {
			s.opts.Logger.Warn("xDS client does not answer: stream closed, it may begin anew",
				zap.String("node", p.node), zap.String("type", s.tables[url].label), zap.Duration("waited", waited))
			s.closeLocked(p, closedStuck, status.Errorf(codes.Aborted, "no answer to a response of type %s for %s: connect again", url, waited.Round(time.Second)))
			return
		}
	}
}

func (s *Server) closeLocked(p *peer, reason string, err error) {
	select {
	case p.closed <- err:
		s.metrics.closed.WithLabelValues(reason).Inc()
	default:
	}
}

// receive handles requests until the stream ends; an orderly end is nil.
func (s *Server) receive(p *peer, g stream) error {
	for {
		r, err := g.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.handle(p, r); errors.Is(err, errLeft) {
			return nil
		} else if err != nil {
			s.metrics.closed.WithLabelValues(closedRefused).Inc()
			s.opts.Logger.Warn("xDS request refused, stream closed", zap.String("node", p.node), zap.Error(err))
			return refusal(err)
		}
	}
}

var errType = errors.New("type is not served here: there are clusters, endpoints and skipper.FunctionInstances")

// errLeft is what a request meets that was read while its stream ended: nothing
// may be subscribed for a stream that nobody will take out again.
var errLeft = errors.New("stream has ended")

// refusal is the status of an error of handle.
func refusal(err error) error {
	if errors.Is(err, delta.ErrTooMany) {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return status.Error(codes.InvalidArgument, err.Error())
}

// handle applies one request, and asks the source for what it newly needs.
func (s *Server) handle(p *peer, r *discoveryv3.DeltaDiscoveryRequest) error {
	fresh, err := s.subscribe(p, r)
	if err != nil {
		return err
	}
	s.resolve(fresh)
	p.notify()
	return nil
}

// subscribe applies a request under the lock. The result are the functions
// whose instances nobody has asked for until now, by name.
func (s *Server) subscribe(p *peer, r *discoveryv3.DeltaDiscoveryRequest) (map[string]*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.peers[p] {
		return nil, errLeft
	}
	if id := r.GetNode().GetId(); p.node == "" {
		p.node = id
	}
	t := s.tables[r.GetTypeUrl()]
	if t == nil {
		return nil, errType
	}
	sub, first := s.subscriptionLocked(p, t)
	o, err := sub.Handle(r)
	if err != nil {
		return nil, err
	}
	if first && t.url == resourcev3.EndpointType {
		p.forgetReclustered(sub)
	}
	s.answeredLocked(p, t, o.Answer, r)
	fresh := s.followLocked(p, t, o)
	if o.Answer == delta.Ack || len(o.Unsubscribed) > 0 {
		s.movedLocked(t)
	}
	s.countResourcesLocked()
	return fresh, nil
}

func (s *Server) subscriptionLocked(p *peer, t *table) (sub *delta.Subscription, first bool) {
	if sub := p.subs[t.url]; sub != nil {
		return sub, false
	}
	p.subs[t.url] = delta.New(t.rules)
	p.progress[t.url] = &progress{joined: s.generation}
	s.metrics.subs.WithLabelValues(t.label).Inc()
	return p.subs[t.url], true
}

func (p *peer) forgetReclustered(endpoints *delta.Subscription) {
	for name := range p.reclustered {
		endpoints.Forget(name)
	}
	p.reclustered = map[string]bool{}
}

func (s *Server) answeredLocked(p *peer, t *table, a delta.Answer, r *discoveryv3.DeltaDiscoveryRequest) {
	switch a {
	case delta.Ack:
		s.metrics.acks.WithLabelValues(t.label).Inc()
		p.progress[t.url].ackedAt = time.Now()
	case delta.Nack:
		s.metrics.nacks.WithLabelValues(t.label).Inc()
		p.progress[t.url].nacked(r.GetErrorDetail().GetMessage(), time.Now())
		s.opts.Logger.Error("xDS client rejected what it was sent; it goes on with the last good version",
			zap.String("node", p.node), zap.String("type", t.label), zap.String("said", r.GetErrorDetail().GetMessage()))
	case delta.None:
	}
}

// followLocked carries out what a request asks for.
func (s *Server) followLocked(p *peer, t *table, o delta.Outcome) map[string]*entry {
	fresh := map[string]*entry{}
	if o.Narrowed {
		delete(t.everyone, p)
	}
	if o.Everything {
		t.subscribeAll(p)
	}
	for _, name := range o.Subscribed {
		if e := t.subscribe(p, name); e != nil {
			fresh[name] = e
		}
	}
	for _, name := range o.Unsubscribed {
		t.unsubscribe(p, name)
	}
	return fresh
}

// resolve asks the source for the instances of functions with a new entry,
// without the lock, because the source has its own.
func (s *Server) resolve(fresh map[string]*entry) {
	lists := make([]list, 0, len(fresh))
	for name, e := range fresh {
		l, err := encodeList(s.ask(name))
		if err != nil { // the client must hear something; the next change may be better
			s.skip(xds.InstancesTypeURL, err)
			l, _ = encodeList(&skipperpb.FunctionInstances{Name: name}) // a checked name always encodes
		}
		l.entry = e
		lists = append(lists, l)
	}
	s.commit(nil, lists)
}

// ask is never nil: what nobody knows is an empty list.
func (s *Server) ask(name string) *skipperpb.FunctionInstances {
	var known *skipperpb.FunctionInstances
	ok := false
	if s.opts.Source != nil {
		known, ok = s.opts.Source.Instances(name)
	}
	m := &skipperpb.FunctionInstances{Name: name, Version: known.GetVersion()}
	if ok {
		m.Instances = known.GetInstances()
	}
	return m
}

// send writes what is due until the stream ends.
func (s *Server) send(p *peer, g stream) error {
	for {
		select {
		case <-p.wake:
		case <-p.left:
			return nil
		}
		for r := s.next(p); r != nil; r = s.next(p) {
			if err := g.Send(r); err != nil {
				return err
			}
		}
	}
}

// next is the next response of a stream, clusters before endpoints.
func (s *Server) next(p *peer) *discoveryv3.DeltaDiscoveryResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.order {
		sub := p.subs[t.url]
		if sub == nil {
			continue
		}
		stamp := delta.Stamp{Nonce: strconv.FormatUint(p.nonce+1, 10), At: time.Now(), Generation: s.generation, MaxBytes: maxResponseBytes}
		if sent := sub.Next(t.url, stamp, t.find); sent != nil {
			p.nonce++
			p.reannounce(t, sent.Updated)
			s.metrics.pushes.WithLabelValues(t.label).Inc()
			return sent.Response
		}
	}
	return nil
}

// reannounce sends the endpoints of changed clusters again: Envoy builds such
// a cluster anew and waits for them, though it has had them before.
func (p *peer) reannounce(t *table, updated []string) {
	if t.url != resourcev3.ClusterType {
		return
	}
	endpoints := p.subs[resourcev3.EndpointType]
	for _, name := range updated {
		if endpoints == nil {
			p.reclustered[name] = true
		} else {
			endpoints.Changed(name)
		}
	}
}
