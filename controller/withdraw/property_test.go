package withdraw

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"skipper/controller/pool"
	"skipper/controller/publish"
	"skipper/proto/fn"
	"skipper/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const modelStaleness = 5 * time.Minute

// maxPods keeps a world small.
const maxPods = 40

// worlds that the property is tried in.
const worlds = 4

// model is a cluster in which everything goes wrong at random: replicas lag,
// stand still and restart, calls between them are late or lost, routers are cut
// off, killed and moved, and addresses are used again at once.
type model struct {
	t    *testing.T
	seed uint64
	rand *rand.Rand // of the goroutine of the test

	mu sync.Mutex
	// The fields below are guarded by mu.
	net  *rand.Rand
	loss int // of a hundred calls
	ring map[string]bool
	// replicas are alive; those that are not yet out of the ring are in ring.
	replicas []*modelReplica

	version  uint64
	log      []event
	pods     map[string]*pool.Pod // as the API server has them
	bodies   map[string]string    // addresses in use, by pod
	extprocs []*modelExtproc
	leases   map[string]Past
	leave    map[string]time.Time // when a dead replica leaves the ring
	odds     int                  // of a disturbance, once in as many rounds or so
	used     map[string]bool      // addresses that some pod has had before
	made     int
	claims   int
	refused  int
}

// modelReplica is a controller: the real View, Publisher and Tracker.
type modelReplica struct {
	ip      string
	view    *pool.View
	server  *modelServer
	tracker *Tracker
	stop    func()

	mu      sync.Mutex
	shown   int       // events that the informer has shown; guarded by mu
	frozen  time.Time // until when it shows none
	freshAt time.Time // guarded by mu
}

func (r *modelReplica) fresh() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.freshAt
}

func newModel(t *testing.T, seed uint64) *model {
	return &model{
		t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 1)), net: rand.New(rand.NewPCG(seed, 2)), loss: 10, ring: map[string]bool{},
		pods: map[string]*pool.Pod{}, bodies: map[string]string{}, leases: map[string]Past{}, leave: map[string]time.Time{},
		odds: []int{4000, 40_000}[seed%2], used: map[string]bool{},
	}
}

func (w *model) startReplica() {
	w.made++
	r := &modelReplica{ip: fmt.Sprint("10.1.0.", w.made), view: pool.NewView()}
	source := &publish.Source{Pods: r.view, Shards: 4}
	r.server = &modelServer{source: source, lists: map[string]modelPush{}, streams: map[*modelStream]bool{}}
	var publisher *publish.Publisher
	r.tracker = New(Config{
		Self: r.ip, Staleness: modelStaleness, View: r.view, Subscribers: r.server, Peers: modelPeers{r.ip, w}, FreshAt: r.fresh,
		Republish: func(k fn.Key) { publisher.Republish(k) }, Freed: func(uids []string) { publisher.Reconsider(uids...) },
		Registerer: prometheus.NewRegistry(), Log: zap.NewNop(),
	})
	r.server.observer = r.tracker.Observer()
	publisher = publish.New(r.view, r.server, source, r.tracker, zap.NewNop(), prometheus.NewRegistry())
	w.show(r, len(w.log))
	r.run(publisher)
	var known []Past
	for _, p := range w.leases {
		known = append(known, p)
	}
	r.tracker.Recall(known)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replicas = append(w.replicas, r)
	w.ring[r.ip] = true
}

func (r *modelReplica) run(p *publish.Publisher) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	opened := make(chan struct{})
	running.Go(func() { _ = p.Run(ctx, func() { close(opened) }) })
	running.Go(func() { _ = r.tracker.Run(ctx) })
	<-opened
	r.stop = func() {
		cancel()
		running.Wait()
	}
}

// show lets the informer show up to n more events.
func (w *model) show(r *modelReplica, n int) {
	r.mu.Lock()
	from := r.shown
	r.shown = min(r.shown+n, len(w.log))
	to := r.shown
	r.mu.Unlock()
	for _, e := range w.log[from:to] {
		if e.removed {
			r.view.Remove(e.pod.Namespace, e.pod.UID, e.pod.Version)
		} else {
			r.view.Apply(e.pod)
		}
	}
	if to == len(w.log) {
		r.mu.Lock()
		r.freshAt = time.Now().Add(-time.Second)
		r.mu.Unlock()
	}
}

// write changes a pod in the API server.
func (w *model) write(p pool.Pod, removed bool) pool.Pod {
	w.version++
	p.Version = w.version
	w.log = append(w.log, event{p, removed})
	if removed {
		delete(w.pods, p.UID)
	} else {
		w.pods[p.UID] = &p
	}
	return p
}

// create makes a free pod at an address that no body has.
func (w *model) create() {
	if len(w.pods) > maxPods {
		return
	}
	used := map[string]bool{}
	for _, addr := range w.bodies {
		used[addr] = true
	}
	for range 10 {
		ip := fmt.Sprint("10.0.0.", w.rand.IntN(12)+1)
		if w.rand.IntN(5) == 0 {
			ip = fmt.Sprint("10.2.", w.made/250, ".", w.made%250+1) // a fresh one
		}
		if used[ip+":80"] {
			continue
		}
		w.made++
		p := pool.Pod{
			Namespace: fmt.Sprint("ns", w.rand.IntN(2)), Name: fmt.Sprint("p", w.made), UID: fmt.Sprint("u", w.made), IP: ip, Port: 80,
			Protocol: xds.HTTP1, Deployment: "echo", OwnedByReplicaSet: true, Ready: true, Phase: corev1.PodRunning,
			CreatedAt: time.Now(), StartedAt: time.Now(),
		}
		w.bodies[p.UID] = p.Addr()
		w.write(p, false)
		return
	}
}

// end lets a claimed pod end in one of the ways in which pods do.
func (w *model) end() {
	p, ok := pick(w.rand, w.claimed())
	if !ok {
		return
	}
	next := *p
	switch w.rand.IntN(4) {
	case 0:
		next.Deleting = true
		w.write(next, false)
	case 1:
		next.Draining, next.DrainingAt = true, time.Now()
		w.write(next, false)
	case 2: // gone in every way at once
		w.write(next, true)
		delete(w.bodies, p.UID)
	case 3: // its body is gone, and the API server does not know yet
		delete(w.bodies, p.UID)
	}
}

// finish carries on with pods that are ending.
func (w *model) finish() {
	for _, p := range sortedPods(w.pods) {
		if _, alive := w.bodies[p.UID]; (p.State() >= pool.Draining || !alive) && w.rand.IntN(20) == 0 {
			delete(w.bodies, p.UID)
			w.write(*p, true)
		}
	}
}

func (w *model) claimed() []*pool.Pod {
	var out []*pool.Pod
	for _, p := range sortedPods(w.pods) {
		if p.State() == pool.Ready {
			out = append(out, p)
		}
	}
	return out
}

// ask is a request of an extproc: GetInstance at any replica, which claims a
// pod where it sees no instance.
func (w *model) ask(e *modelExtproc) {
	r, ok := pick(w.rand, w.replicas)
	if !ok || e.dead || !e.cut.IsZero() {
		return
	}
	n := w.rand.IntN(6)
	_, key := keyOf(n)
	e.wants[nameOf(key)] = true
	if e.at != nil {
		e.at.server.subscribe(e.stream, nameOf(key))
	}
	for _, p := range r.view.Instances(key) {
		if p.Routable() && w.rand.IntN(4) > 0 {
			e.told(nameOf(key), p)
			return
		}
	}
	if p, ok := w.claim(r, n); ok {
		e.told(nameOf(key), p)
	}
}

func (w *model) claim(r *modelReplica, n int) (pool.Pod, bool) {
	f, key := keyOf(n)
	for _, p := range r.view.Unassigned(key.Namespace, "echo") {
		if ok, why := r.tracker.Allowed(p); !ok {
			w.refused++
			w.checkRefusal(r, p, why)
			continue
		}
		now := w.pods[p.UID]
		if now == nil || now.Marked || now.Version != p.Version {
			continue // lost to another
		}
		w.claims++
		w.used[p.Addr()] = true
		next := *now
		next.Marked, next.Tenant, next.Function, next.Key = true, f.GetTenant(), f, key
		next.AssignedAt, next.ReadyAt = time.Now(), time.Now()
		next = w.write(next, false)
		r.view.ExpectWritten(next)
		return next, true
	}
	return pool.Pod{}, false
}

// checkRefusal wants fresh addresses to be held up by nothing but ignorance.
func (w *model) checkRefusal(r *modelReplica, p *pool.Pod, why string) {
	r.tracker.mu.Lock()
	complete := r.tracker.book.complete(time.Now())
	r.tracker.mu.Unlock()
	if complete && !w.used[p.Addr()] {
		w.t.Errorf("seed %d: a fresh address is refused: %s", w.seed, why)
	}
}

// check looks for a router that sends one tenant's requests to another's pod.
func (w *model) check(now time.Time) {
	owners := map[string]*pool.Pod{}
	for uid, addr := range w.bodies {
		if p := w.pods[uid]; p != nil && p.Function != nil {
			owners[addr] = p
		}
	}
	for _, e := range w.extprocs {
		if !e.usable(now, modelStaleness) {
			continue
		}
		for name, hosts := range e.table {
			for uid, h := range hosts {
				if p := owners[h.addr]; p != nil && p.UID != uid {
					w.t.Fatalf("seed %d: %s would send a request of %s for pod %s to %s, which is pod %s of %s now",
						w.seed, e.node, name, uid, h.addr, p.UID, p.Key)
				}
			}
		}
	}
}

func TestNoStaleTableMeetsAnAddressAgain(t *testing.T) {
	for seed := range uint64(worlds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newModel(t, seed).live() })
		})
	}
}
