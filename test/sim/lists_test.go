package sim

import (
	"slices"
	"strings"
	"sync"
	"time"

	"skipper/controller/publish"
	skipperpb "skipper/proto"
	"skipper/xds/server"
)

// lists stands for a replica's xDS server: who is subscribed to what, what they
// were sent, and what they have acknowledged.
type lists struct {
	source *publish.Source

	mu       sync.Mutex
	observer server.Observer
	gen      uint64
	newest   map[string]push // by name
	streams  map[*stream]bool
}

type push struct {
	gen  uint64
	list *skipperpb.FunctionInstances
}

// stream is one subscriber. The lists' lock guards it.
type stream struct {
	node     string
	joined   uint64
	acked    map[string]uint64 // by name: each that it is subscribed to
	queue    []push
	caughtUp bool
	quietAt  time.Time
	more     func() // told that there is something to deliver
}

func newLists(source *publish.Source) *lists {
	return &lists{source: source, newest: map[string]push{}, streams: map[*stream]bool{}}
}

// Open implements the publisher's sink.
func (l *lists) Open() {}

// Apply implements the publisher's sink.
func (l *lists) Apply(c server.Change) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gen++
	for _, list := range c.Instances {
		name := list.GetName()
		if before, ok := l.newest[name]; ok && before.list.GetVersion() > list.GetVersion() {
			continue
		}
		l.newest[name] = push{l.gen, list}
		for s := range l.streams {
			if _, subscribed := s.acked[name]; subscribed {
				s.queue = append(s.queue, l.newest[name])
				s.more()
			}
		}
	}
	return l.gen
}

func (l *lists) join(node string, more func()) *stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &stream{node: node, joined: l.gen, acked: map[string]uint64{}, more: more}
	l.streams[s] = true
	return s
}

func (l *lists) subscribe(s *stream, name string) {
	list, _ := l.source.Instances(name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, twice := s.acked[name]; twice || !l.streams[s] {
		return
	}
	s.acked[name] = 0
	l.gen++
	if before, ok := l.newest[name]; !ok || before.list.GetVersion() < list.GetVersion() {
		l.newest[name] = push{l.gen, list}
	}
	s.queue = append(s.queue, l.newest[name])
	s.more()
}

func (l *lists) unsubscribe(s *stream, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(s.acked, name)
	s.queue = slices.DeleteFunc(s.queue, func(p push) bool { return p.list.GetName() == name })
	l.observer.Acknowledged()
}

// take is the next push for the stream.
func (l *lists) take(s *stream) (push, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(s.queue) == 0 {
		return push{}, false
	}
	p := s.queue[0]
	s.queue = s.queue[1:]
	return p, true
}

func (l *lists) acknowledge(s *stream, p push) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, subscribed := s.acked[p.list.GetName()]; subscribed && l.streams[s] {
		s.acked[p.list.GetName()] = max(before, p.gen)
		l.observer.Acknowledged()
	}
}

func (l *lists) leave(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.streams[s] {
		return
	}
	d := server.Departure{Node: s.node, At: time.Now(), Acknowledged: map[string]uint64{}}
	for name, acked := range s.acked {
		d.Acknowledged[name] = acked
		if l.knowsLocked(s, name, l.gen) {
			d.Acknowledged[name] = l.gen
		}
	}
	l.observer.Left(d)
	delete(l.streams, s)
}

// knowsLocked says that the stream has acknowledged the generation, or all there is.
func (l *lists) knowsLocked(s *stream, name string, gen uint64) bool {
	acked := s.acked[name]
	return acked > 0 && (acked >= gen || acked >= l.newest[name].gen)
}

// Unacknowledged implements withdraw's subscribers.
func (l *lists) Unacknowledged(_, name string, gen uint64) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for s := range l.streams {
		if _, subscribed := s.acked[name]; subscribed && !l.knowsLocked(s, name, gen) {
			out = append(out, s.node)
		}
	}
	return out
}

// Subscribers implements withdraw's subscribers.
func (l *lists) Subscribers() []server.Subscriber {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []server.Subscriber
	for s := range l.streams {
		if len(s.acked) == 0 {
			continue // it has not said who it is
		}
		all := true
		for name := range s.acked {
			all = all && l.knowsLocked(s, name, s.joined)
		}
		s.caughtUp = s.caughtUp || all
		if len(s.queue) == 0 && all {
			s.quietAt = time.Now()
		}
		out = append(out, server.Subscriber{Node: s.node, Type: "instances", Names: len(s.acked), CaughtUp: s.caughtUp, QuietAt: s.quietAt})
	}
	slices.SortFunc(out, func(a, b server.Subscriber) int { return strings.Compare(a.Node, b.Node) })
	return out
}
