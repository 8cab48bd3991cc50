package server

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"skipper/xds"
	"skipper/xds/server/internal/delta"
)

// Observer hears what subscribers of instances do. Its functions are called
// with the server locked: they must be quick and must not call the Server.
type Observer struct {
	// Acknowledged is told that some subscriber has acknowledged something, or
	// no longer wants it: Unacknowledged may have become shorter.
	Acknowledged func()
	// Left is told of every stream with a subscription to instances that has
	// ended, before Unacknowledged leaves it out.
	Left func(Departure)
}

// Departure is the end of a stream.
type Departure struct {
	// Node is the client's node id.
	Node string
	At   time.Time
	// Acknowledged has the names of all resources that the client was subscribed
	// to, each with the generation up to which it has acknowledged them.
	Acknowledged map[string]uint64
}

// Observe makes o the observer; it replaces the one before.
func (s *Server) Observe(o Observer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observer = o
}

// Subscriber is how far a client is with one type, on one stream.
type Subscriber struct {
	Node string
	// Type is the label of the type: cluster, endpoint or instances.
	Type string
	// Names that it is subscribed to one by one; 0 for one that wants all.
	Names int
	// Pending are resources that it was not sent yet, or has not answered.
	Pending int
	// Overdue is how long the response that is not answered has been on its way.
	Overdue time.Duration
	// AckedAt is when it last acknowledged something; zero: never yet.
	AckedAt time.Time
	// Nacks are its rejections on this stream; NackedAt is when the newest was,
	// and NackMessage what it said, shortened.
	Nacks       int
	NackedAt    time.Time
	NackMessage string
	// QuietAt is when it was last known to have acknowledged everything; zero:
	// never yet.
	QuietAt time.Time
	// CaughtUp says that it has acknowledged all that was published when it
	// subscribed, or later versions.
	CaughtUp bool
}

// Subscribers lists how far all clients are, ordered by node and type. It costs
// as much as there are streams, and for those that have not caught up, names.
func (s *Server) Subscribers() []Subscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var out []Subscriber
	for p := range s.peers {
		for url, sub := range p.subs {
			t := s.tables[url]
			p.progress[url].look(t, sub, now)
			out = append(out, subscriber(p, t, sub, now))
		}
	}
	slices.SortFunc(out, func(a, b Subscriber) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Type, b.Type))
	})
	return out
}

func subscriber(p *peer, t *table, sub *delta.Subscription, now time.Time) Subscriber {
	g := p.progress[t.url]
	return Subscriber{
		Node: p.node, Type: t.label, Names: sub.Len(), Pending: sub.Pending(), Overdue: sub.Overdue(now),
		AckedAt: g.ackedAt, QuietAt: g.quietAt, CaughtUp: g.caughtUp,
		Nacks: g.nacks, NackedAt: g.nackedAt, NackMessage: g.nackMessage,
	}
}

// progress of one client with one type. The server's lock guards it.
type progress struct {
	joined           uint64 // generation when it subscribed
	ackedAt, quietAt time.Time
	caughtUp         bool
	nacks            int
	nackedAt         time.Time
	nackMessage      string
}

// maxNackMessage is the longest that is kept of what a client says, in bytes.
const maxNackMessage = 512

func (g *progress) nacked(said string, now time.Time) {
	g.nacks++
	g.nackedAt = now
	g.nackMessage = strings.ToValidUTF8(said[:min(len(said), maxNackMessage)], "")
}

// look notes what holds now.
func (g *progress) look(t *table, sub *delta.Subscription, now time.Time) {
	quiet := sub.Pending() == 0 && t.asking == 0
	if quiet {
		g.quietAt = now
	}
	g.caughtUp = g.caughtUp || quiet || t.acknowledgedAll(sub, g.joined)
}

func (t *table) acknowledgedAll(sub *delta.Subscription, generation uint64) bool {
	for _, name := range sub.Names() {
		if !t.acknowledged(sub, name, generation) {
			return false
		}
	}
	return !sub.Wants("") // one that wants all is only judged by being quiet
}

func (t *table) acknowledged(sub *delta.Subscription, name string, generation uint64) bool {
	e := t.entries[name]
	if e != nil && e.pending {
		return false
	}
	return sub.Acknowledged(name, e.currentVersion(), generation)
}

// departedLocked tells the observer of a stream that ends.
func (s *Server) departedLocked(p *peer) {
	sub := p.subs[xds.InstancesTypeURL]
	if sub == nil || s.observer.Left == nil {
		return
	}
	t := s.tables[xds.InstancesTypeURL]
	d := Departure{Node: p.node, At: time.Now(), Acknowledged: map[string]uint64{}}
	for _, name := range sub.Names() {
		e := t.entries[name]
		d.Acknowledged[name] = sub.AcknowledgedUpTo(name, e.currentVersion(), s.generation)
		if e != nil && e.pending {
			d.Acknowledged[name] = 0
		}
	}
	s.observer.Left(d)
}

// movedLocked tells the observer that acknowledgements may have changed.
func (s *Server) movedLocked(t *table) {
	if t.url == xds.InstancesTypeURL && s.observer.Acknowledged != nil {
		s.observer.Acknowledged()
	}
}
