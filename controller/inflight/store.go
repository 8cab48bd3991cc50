package inflight

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"skipper/controller/heartbeat"
	"skipper/controller/pool"
	"skipper/proto/fn"
	"skipper/xds/loads"
)

// pods is what is read of the cluster: *pool.View.
type pods interface {
	Instances(key fn.Key) []pool.Pod
	Pod(uid string) (pool.Pod, bool)
}

// maxNodes bounds the Envoys that are remembered: as many as there may be
// routers.
const maxNodes = 1_024

// Config of a Store. All fields are required.
type Config struct {
	Pods       pods
	Addresses  *Addresses
	Heartbeats *heartbeat.Store
	// Expiry is how long the last word about an Envoy counts (--drain-timeout).
	Expiry time.Duration
	// Protected says that this replica has not run for long enough to have
	// heard of everybody.
	Protected  func(now time.Time) bool
	Registerer prometheus.Registerer
	Log        *zap.Logger
}

// Store holds the newest load reports and merges them with the heartbeats. It
// is the Sink of the load reporting server. Safe for concurrent use.
type Store struct {
	cfg     Config
	log     *zap.Logger
	metrics *metrics

	mu sync.RWMutex
	// The fields below are guarded by mu.
	nodes map[string]words     // by Envoy's node id
	left  map[string]time.Time // when the extproc of a node said goodbye
	// overflowed is when a word about an Envoy was last not taken, because there
	// are too many; zero: never.
	overflowed time.Time
}

// New makes a store without reports.
func New(cfg Config) *Store {
	s := &Store{cfg: cfg, log: cfg.Log.Named("inflight"), nodes: map[string]words{}, left: map[string]time.Time{}}
	s.metrics = newMetrics(cfg.Registerer, s)
	return s
}

// Reported takes in a report of an Envoy that is connected here.
func (s *Store) Reported(from loads.Stream, received time.Time, busy []loads.Busy) {
	inFlight, unknown := s.cfg.Addresses.Resolve(busy)
	s.put(from.Node, source{stream: from.ID}, word{received: received, connected: true, inFlight: inFlight, unknown: unknown}, received)
}

// Ended says that a stream has ended: what it said last holds until the Envoy
// is heard elsewhere, or the expiry.
func (s *Store) Ended(from loads.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, w := source{stream: from.ID}, s.nodes[from.Node]
	if said, ok := w[at]; ok {
		said.connected = false
		w.put(at, said)
	}
}

// Goodbye says that the extproc of an Envoy has stopped. An Envoy that had
// nothing in progress when it was last heard, and is connected no more, is gone
// then: nobody gives it requests. Without that, the end of a gateway would hold
// up every drain until the expiry.
func (s *Store) Goodbye(node string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweepLocked(now)
	if node != "" && len(s.left) < maxNodes {
		s.left[node] = now
	}
}

// Served says that an extproc serves the Envoy: where the one before it has said
// goodbye, the Envoy has outlived that, and is given requests again.
func (s *Store) Served(node string) {
	s.mu.RLock()
	_, left := s.left[node]
	s.mu.RUnlock()
	if !left {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.left, node)
}

// countsLocked tells whether the Envoy may still have something in progress.
func (s *Store) countsLocked(node string, w words, now time.Time) bool {
	_, left := s.left[node]
	return !w.expired(now, s.cfg.Expiry) && (!left || w.inUse())
}

// put says whether the word was taken.
func (s *Store) put(node string, from source, said word, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.nodes[node]
	if w == nil {
		s.sweepLocked(now)
		if len(s.nodes) >= maxNodes {
			s.overflowed = now
			return false
		}
		w = words{}
		s.nodes[node] = w
	}
	w.put(from, said)
	return true
}

func (s *Store) sweepLocked(now time.Time) {
	for node, w := range s.nodes {
		if w.expired(now, s.cfg.Expiry) {
			delete(s.nodes, node)
		}
	}
	for node, at := range s.left {
		if now.Sub(at) > s.cfg.Expiry {
			delete(s.left, node)
		}
	}
}

// overlooked says that an Envoy which is not remembered may have something in
// progress: one that was not taken said so lately.
func (s *Store) overlooked(now time.Time) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return !s.overflowed.IsZero() && now.Sub(s.overflowed) <= s.cfg.Expiry
}

// loads are those that count, in no order.
func (s *Store) loads(now time.Time) []Load {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]Load, 0, len(s.nodes))
	for node, w := range s.nodes {
		if s.countsLocked(node, w, now) {
			out = append(out, w.load(node))
		}
	}
	return out
}

// lostAfter is how old a load may be that a function is scaled by: longer than
// an Envoy takes to begin another stream, several times. The last word of an
// Envoy that is gone for good must not make its successor's requests count
// twice for minutes; its pods are still not taken for empty.
const lostAfter = 30 * time.Second

// Activity sums up what is known of a function: InFlight is merged, without
// the last words of Envoys that are lost, and Last is the newest heartbeat, or
// the newest load report that names one of its pods, which keeps the function
// alive in the same way.
func (s *Store) Activity(key fn.Key, now time.Time) heartbeat.Activity {
	a := s.cfg.Heartbeats.Activity(key, now)
	all, uids := s.loads(now), s.uids(key)
	present := slices.DeleteFunc(slices.Clone(all), func(l Load) bool { return now.Sub(l.Received) > lostAfter })
	a.InFlight = Function(uids, present, s.cfg.Heartbeats.Reports(key, now))
	for _, uid := range uids {
		if at, ok := named(all, uid); ok && at.After(a.Last) {
			a.Last = at
		}
	}
	return a
}

func (s *Store) uids(key fn.Key) []string {
	instances := s.cfg.Pods.Instances(key)
	uids := make([]string, len(instances))
	for i, p := range instances {
		uids[i] = p.UID
	}
	return uids
}

// named is when the newest load came that has requests on the pod.
func named(all []Load, uid string) (at time.Time, ok bool) {
	for _, l := range all {
		if l.On(uid) > 0 && l.Received.After(at) {
			at, ok = l.Received, true
		}
	}
	return at, ok
}

// InFlightOf is the number of requests in progress on one pod of the function.
// It is known only if every live router says where its requests are.
func (s *Store) InFlightOf(key fn.Key, uid string, now time.Time) (n uint64, known bool) {
	_, known = s.cfg.Heartbeats.InFlightOf(key, uid, now)
	return Pod(uid, s.loads(now), s.cfg.Heartbeats.Reports(key, now)), known
}

// Named is when the newest heartbeat or load report came that has requests on
// the pod; false if there is none.
func (s *Store) Named(key fn.Key, uid string, now time.Time) (at time.Time, ok bool) {
	at, ok = s.cfg.Heartbeats.Named(key, uid, now)
	if reported, too := named(s.loads(now), uid); too && reported.After(at) {
		return reported, true
	}
	return at, ok
}

// Forget drops the heartbeats of a function. Load reports are about pods, and
// end with them.
func (s *Store) Forget(key fn.Key) { s.cfg.Heartbeats.Forget(key) }

// InFlightSince is the number of requests in progress on a pod, whatever its
// state. It is known only if every Envoy that is connected, or not lost for
// longer than the expiry, and every live router of the pod's function has
// spoken later than since, and says where its requests are: see Known. Pods
// that are not in the view are unknown, and in the protection period after the
// start all are. asOf is as of when that is known; zero where nobody speaks.
func (s *Store) InFlightSince(uid string, since time.Time) (n int, known bool, asOf time.Time) {
	return s.since(uid, since, time.Now())
}

// firstWord is how long a router that names no Envoy may take to tell of the
// first request to a function that it has not named before: the heartbeat
// interval, and the time that a heartbeat may take to arrive.
const firstWord = 5*time.Second + beatUnderWay

func (s *Store) since(uid string, since, now time.Time) (n int, known bool, asOf time.Time) {
	pod, there := s.cfg.Pods.Pod(uid)
	all, beats := s.loads(now), s.cfg.Heartbeats.Reports(pod.Key, now)
	known, asOf = Known(all, beats, since)
	if now.Sub(since) < firstWord && s.cfg.Heartbeats.AnyWithoutEnvoy(now) {
		known = false
	}
	return int(min(Pod(uid, all, beats), 1<<30)), known && there && !s.overlooked(now) && !s.cfg.Protected(now), asOf
}

// state is how long ago the Envoy was heard that was heard longest ago, and how
// many addresses the Envoys of this replica named that no pod has.
func (s *Store) state(now time.Time) (age time.Duration, unknown int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for node, w := range s.nodes {
		if !s.countsLocked(node, w, now) {
			continue
		}
		age = max(age, now.Sub(w[w.newest()].received))
		if said, ok := w.here(); ok {
			unknown += said.unknown
		}
	}
	return age, unknown
}

// Nodes are the Envoys that count now, sorted.
func (s *Store) Nodes(now time.Time) []string {
	all := s.loads(now)
	out := make([]string, len(all))
	for i, l := range all {
		out[i] = l.Node
	}
	slices.Sort(out)
	return out
}
