package withdraw

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
	"skipper/xds/server"
)

// modelServer stands for the xDS server of one replica.
type modelServer struct {
	source interface {
		Instances(name string) (*skipperpb.FunctionInstances, bool)
	}

	mu       sync.Mutex
	observer server.Observer
	gen      uint64
	lists    map[string]modelPush // newest by name
	streams  map[*modelStream]bool
}

type modelPush struct {
	gen  uint64
	list *skipperpb.FunctionInstances
}

// modelStream is what the server knows of one subscriber.
type modelStream struct {
	node     string
	joined   uint64
	acked    map[string]uint64 // by name: every name that is subscribed to
	queue    []modelPush
	caughtUp bool
	quietAt  time.Time
}

func (s *modelServer) Open() {}

func (s *modelServer) Apply(c server.Change) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gen++
	for _, l := range c.Instances {
		s.putLocked(l)
	}
	return s.gen
}

func (s *modelServer) putLocked(l *skipperpb.FunctionInstances) {
	if before, ok := s.lists[l.GetName()]; ok && before.list.GetVersion() > l.GetVersion() {
		return
	}
	push := modelPush{s.gen, l}
	s.lists[l.GetName()] = push
	for g := range s.streams {
		if _, subscribed := g.acked[l.GetName()]; subscribed {
			g.queue = append(g.queue, push)
		}
	}
}

func (s *modelServer) join(node string) *modelStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := &modelStream{node: node, joined: s.gen, acked: map[string]uint64{}}
	s.streams[g] = true
	return g
}

func (s *modelServer) subscribe(g *modelStream, name string) {
	l, _ := s.source.Instances(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := g.acked[name]; twice {
		return
	}
	g.acked[name] = 0
	s.gen++
	before, ok := s.lists[name]
	if !ok || before.list.GetVersion() < l.GetVersion() {
		before = modelPush{s.gen, l}
		s.lists[name] = before
	}
	g.queue = append(g.queue, before)
}

// deliver hands the next pushes to the client and takes its answers.
func (s *modelServer) deliver(g *modelStream, n int, take func(*skipperpb.FunctionInstances)) {
	for range n {
		s.mu.Lock()
		if len(g.queue) == 0 {
			s.mu.Unlock()
			return
		}
		push := g.queue[0]
		g.queue = g.queue[1:]
		s.mu.Unlock()
		take(push.list)
		s.mu.Lock()
		g.acked[push.list.GetName()] = push.gen
		s.observer.Acknowledged()
		s.mu.Unlock()
	}
}

func (s *modelServer) leave(g *modelStream, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.streams[g] {
		return
	}
	d := server.Departure{Node: g.node, At: now, Acknowledged: map[string]uint64{}}
	for name := range g.acked {
		d.Acknowledged[name] = g.acked[name]
		if s.knowsLocked(g, name, s.gen) {
			d.Acknowledged[name] = s.gen
		}
	}
	s.observer.Left(d)
	delete(s.streams, g)
}

func (s *modelServer) knowsLocked(g *modelStream, name string, gen uint64) bool {
	acked := g.acked[name]
	return acked > 0 && (acked >= gen || acked >= s.lists[name].gen)
}

func (s *modelServer) Unacknowledged(_, name string, gen uint64) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for g := range s.streams {
		if _, subscribed := g.acked[name]; subscribed && !s.knowsLocked(g, name, gen) {
			out = append(out, g.node)
		}
	}
	return out
}

func (s *modelServer) Subscribers() []server.Subscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []server.Subscriber
	for g := range s.streams {
		if len(g.acked) == 0 {
			continue // it has not said who it is
		}
		caughtUp := true
		for name := range g.acked {
			caughtUp = caughtUp && s.knowsLocked(g, name, g.joined)
		}
		g.caughtUp = g.caughtUp || caughtUp
		if len(g.queue) == 0 && caughtUp {
			g.quietAt = time.Now()
		}
		out = append(out, server.Subscriber{Node: g.node, Type: "instances", Names: len(g.acked), CaughtUp: g.caughtUp, QuietAt: g.quietAt})
	}
	return out
}

// modelExtproc is a router with its table.
type modelExtproc struct {
	node    string
	at      *modelReplica // whom it is connected to, as it believes; nil: nobody
	stream  *modelStream
	cut     time.Time // since when nothing gets through, unnoticed; zero: all does
	heard   time.Time // when it last was, or believed to be, in touch
	away    time.Time // it reconnects after this
	dead    bool
	wants   map[string]bool
	version map[string]uint64               // of the newest list, by name
	table   map[string]map[string]modelHost // by name and UID
}

type modelHost struct {
	addr    string
	version uint64
}

func newModelExtproc(node string) *modelExtproc {
	return &modelExtproc{
		node: node, heard: time.Now(), wants: map[string]bool{}, version: map[string]uint64{}, table: map[string]map[string]modelHost{},
	}
}

// push takes a list: what is newer than it stays.
func (e *modelExtproc) push(l *skipperpb.FunctionInstances) {
	name := l.GetName()
	if l.GetVersion() < e.version[name] {
		return
	}
	e.version[name] = l.GetVersion()
	next := map[string]modelHost{}
	for uid, h := range e.table[name] {
		if h.version > l.GetVersion() {
			next[uid] = h
		}
	}
	for _, i := range l.GetInstances() {
		next[i.GetUid()] = modelHost{i.GetAddr(), i.GetVersion()}
	}
	e.table[name] = next
}

// told takes an answer to GetInstance.
func (e *modelExtproc) told(name string, p pool.Pod) {
	if p.Version <= e.version[name] {
		return
	}
	if e.table[name] == nil {
		e.table[name] = map[string]modelHost{}
	}
	e.table[name][p.UID] = modelHost{p.Addr(), p.Version}
}

// usable says that requests are sent by the table.
func (e *modelExtproc) usable(now time.Time, staleness time.Duration) bool {
	return !e.dead && now.Sub(e.heard) <= staleness
}

// modelPeers carries calls between trackers, late or not at all.
type modelPeers struct {
	self  string
	world *model
}

func (p modelPeers) Members() []string {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	var out []string
	for ip := range p.world.ring {
		if ip != p.self {
			out = append(out, ip)
		}
	}
	slices.Sort(out)
	return out
}

var errLost = errors.New("lost")

func (p modelPeers) Call(ctx context.Context, ip string, do func(context.Context, skipperpb.ReplicaServiceClient) error) error {
	return do(ctx, modelCall{world: p.world, ip: ip})
}

type modelCall struct {
	skipperpb.ReplicaServiceClient // nil: nothing but progress is shared
	world                          *model
	ip                             string
}

func (c modelCall) ShareProgress(ctx context.Context, r *skipperpb.ShareProgressRequest, _ ...grpc.CallOption) (*skipperpb.ShareProgressResponse, error) {
	there, back, fate := c.world.luck()
	if !rest(ctx, there) || fate == lostThere {
		return nil, errLost
	}
	to := c.world.replica(c.ip)
	if to == nil {
		return nil, errLost
	}
	answer := to.tracker.Hear(r)
	if !rest(ctx, back) || fate == lostBack {
		return nil, errLost
	}
	return answer, nil
}

type fate int

const (
	arrives fate = iota
	lostThere
	lostBack
)

func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (w *model) luck() (there, back time.Duration, f fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	there, back = time.Duration(w.net.IntN(300))*time.Millisecond, time.Duration(w.net.IntN(300))*time.Millisecond
	if w.net.IntN(100) < w.loss {
		f = []fate{lostThere, lostBack}[w.net.IntN(2)]
	}
	return there, back, f
}

func (w *model) replica(ip string) *modelReplica {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.replicas {
		if r.ip == ip {
			return r
		}
	}
	return nil
}

// event is one change in the API server.
type event struct {
	pod     pool.Pod
	removed bool
}

// keyOf is one of a few functions.
func keyOf(n int) (*skipperpb.Function, fn.Key) {
	f := &skipperpb.Function{Namespace: fmt.Sprint("ns", n%2), Deployment: "echo", Tenant: fmt.Sprint("t", n), Scale: &skipperpb.Scale{MaxInstances: 9}}
	return f, fn.KeyOf(f)
}

// pick is a random element.
func pick[T any](r *rand.Rand, all []T) (one T, ok bool) {
	if len(all) == 0 {
		return one, false
	}
	return all[r.IntN(len(all))], true
}

func sortedPods(all map[string]*pool.Pod) []*pool.Pod {
	var out []*pool.Pod
	for _, uid := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[uid])
	}
	return out
}

func nameOf(k fn.Key) string { return xds.InstancesName(k) }
