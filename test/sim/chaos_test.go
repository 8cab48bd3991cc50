package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skipper/controller/pool"
	"skipper/extproc/header"
	"skipper/proto/fn"
)

// kind of disturbance.
type kind int

const (
	podFails kind = iota
	podEvicted
	podRemoved
	podLost
	podRestarts
	informerLags
	informerFreezes
	replicaKilled
	replicaStops
	replicasRestart
	replicaJoins
	ringsDiffer
	replicasCut
	extprocKilled
	extprocCut
	envoyDeaf
	gatewayStops
	gatewayKilled
	poolRolls
	poolShrinks
	metadataChanges
	metadataContested
	apiDown
	apiSlow
	functionBad
	loadChanges
	kinds
)

var kindNames = [...]string{
	"pod fails", "pod evicted", "pod removed", "pod lost", "pod restarts", "informer lags", "informer freezes", "replica killed",
	"replica stops", "replicas restart", "replica joins", "rings differ", "replicas cut", "extproc killed", "extproc cut", "envoy deaf",
	"gateway stops", "gateway killed", "pool rolls", "pool shrinks", "metadata changes", "metadata contested", "api down", "api slow",
	"function bad", "load changes",
}

// odds are what may happen in one schedule: in each another selection, so that
// what needs peace otherwise gets it.
type odds struct {
	on    [kinds]bool
	every time.Duration // between two disturbances, on average
	all   []kind
}

func newOdds(r *rand.Rand) odds {
	o := odds{every: time.Duration(1000+r.IntN(5000)) * time.Millisecond}
	for k := range kinds {
		if r.IntN(3) > 0 || k == loadChanges {
			o.on[k] = true
			o.all = append(o.all, k)
		}
	}
	return o
}

func newWorld(seed uint64, b broken) *world {
	w := &world{
		seed: seed, broken: b, rnd: rand.New(rand.NewPCG(seed, 3)), began: time.Now(), wake: make(chan struct{}, 1),
		lucks: map[string]uint64{}, bodies: map[string]*body{}, open: map[string]map[*request]struct{}{},
		links: map[[2]string]time.Time{}, ended: map[string]bool{}, oracle: newOracle(),
		leases: map[string]leased{}, replied: map[string]bool{}, api: api{pods: map[string]*corev1.Pod{}},
	}
	w.fate = rand.New(rand.NewPCG(seed, 4))
	w.odds = newOdds(w.fate)
	w.pools = []*deployment{{namespace: "east", name: "alpha", replicas: 6}, {namespace: "west", name: "beta", replicas: 6}}
	for i := range 4 + w.fate.IntN(2) {
		w.functions = append(w.functions, w.newFunction(i))
	}
	return w
}

func (w *world) newFunction(i int) *function {
	f := &function{
		name: fmt.Sprint("t", i), pool: w.pools[i%2], highest: uint32(1 + w.fate.IntN(4)), threshold: uint32(w.fate.IntN(4)),
		rnd: rand.New(rand.NewPCG(w.seed, uint64(10+i))), metadata: "v1", headers: map[string]*header.Function{}, longest: 2 * time.Second,
	}
	f.lowest = uint32(w.fate.IntN(int(f.highest) + 1))
	f.key = fn.Key{Namespace: f.pool.namespace, Deployment: f.pool.name, Tenant: f.name, Oneshot: i == 3}
	return f
}

// begin makes the world as it is before the first request.
func (w *world) begin() {
	for _, d := range w.pools {
		w.roll(d)
		w.every(700*time.Millisecond, func() bool { w.reconcile(d); return true })
	}
	for range 1 + w.fate.IntN(3) {
		w.startReplica()
	}
	for i := range 2 + w.fate.IntN(2) {
		w.startGateway(i == 2)
	}
	for _, f := range w.functions {
		w.changeLoad(f)
		w.after(w.upTo(0, time.Second), func() { w.traffic(f) })
	}
	w.every(10*time.Second, func() bool { w.checkCounts(); return true })
	w.after(w.odds.every, w.disturb)
}

// traffic sends the next request of a function, and the one after it.
func (w *world) traffic(f *function) {
	if w.calm {
		return
	}
	wait := time.Second
	if f.rate > 0 {
		takes := time.Duration(f.rnd.ExpFloat64() * float64(time.Second))
		if f.rnd.IntN(6) == 0 {
			takes = time.Duration(f.rnd.Int64N(int64(f.longest)))
		}
		w.arrive(f, min(takes, 70*time.Second))
		wait = time.Duration(f.rnd.ExpFloat64() / f.rate * float64(time.Second))
	}
	w.after(wait, func() { w.traffic(f) })
}

func (w *world) changeLoad(f *function) {
	f.rate = []float64{0, 0, 0.1, 0.3, 1, 2}[f.rnd.IntN(6)]
	if f.key.Oneshot {
		f.rate = min(f.rate, 0.3)
	}
	f.longest = []time.Duration{2 * time.Second, 20 * time.Second, 80 * time.Second}[f.rnd.IntN(3)]
	w.say("load", "%s: %v a second, the longest %s", f, f.rate, f.longest)
}

// disturb does one thing, and the next one later.
func (w *world) disturb() {
	if w.calm {
		return
	}
	k, _ := oneOf(w.fate, w.odds.all)
	w.say("world", "%s", kindNames[k])
	w.happen(k)
	w.after(time.Duration(w.fate.ExpFloat64()*float64(w.odds.every)), w.disturb)
}

func (w *world) happen(k kind) {
	switch {
	case k <= podRestarts:
		w.disturbPod(k)
	case k <= replicasCut:
		w.disturbReplica(k)
	case k <= gatewayKilled:
		w.disturbGateway(k)
	default:
		w.disturbRest(k)
	}
}

// disturbPod ends or restarts a pod, mostly a claimed one.
func (w *world) disturbPod(k kind) {
	w.mu.Lock()
	var all []string
	for _, p := range w.podsLocked() {
		if p.Labels[pool.LabelTenant] != "" || w.fate.IntN(8) == 0 {
			if b := w.bodies[string(p.UID)]; b != nil && b.alive {
				all = append(all, string(p.UID))
			}
		}
	}
	w.mu.Unlock()
	uid, ok := oneOf(w.fate, all)
	if !ok {
		return
	}
	w.say("pod", "%s: %s", uid, kindNames[k])
	map[kind]func(string){podFails: w.failPod, podEvicted: w.evictPod, podRemoved: w.removePod, podLost: w.losePod, podRestarts: w.restartPod}[k](uid)
}

func (w *world) disturbReplica(k kind) {
	r, ok := oneOf(w.fate, w.replicas)
	switch {
	case k == replicaJoins:
		if len(w.replicas) < 3 {
			w.startReplica()
		}
	case !ok:
	case k == informerLags:
		w.lag(r, w.fated(0, 8*time.Second), w.fated(5*time.Second, 30*time.Second))
	case k == informerFreezes:
		w.mu.Lock()
		r.frozenTil = time.Now().Add(w.fated(time.Second, 20*time.Second))
		w.mu.Unlock()
	case k == replicaKilled:
		w.killReplica(r)
		w.restartLater()
	case k == replicaStops:
		w.stopReplica(r)
		w.restartLater()
	case k == replicasRestart:
		for len(w.replicas) > 0 {
			w.killReplica(w.replicas[0])
			w.restartLater()
		}
	case k == replicasCut:
		w.cutReplicas(r)
	}
}

func (w *world) restartLater() {
	w.after(w.fated(0, 15*time.Second), func() {
		if len(w.replicas) < 3 {
			w.startReplica()
		}
	})
}

func (w *world) lag(r *replica, most, lasts time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.lag = most
	w.afterLocked(lasts, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		r.lag = 50 * time.Millisecond
	})
}

func (w *world) cutReplicas(r *replica) {
	other, _ := oneOf(w.fate, w.replicas)
	a, b := min(r.ip, other.ip), max(r.ip, other.ip)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.links[[2]string{a, b}] = time.Now().Add(between(w.luckLocked("cut", a+b), time.Second, 15*time.Second))
	w.oracle.moved = w.links[[2]string{a, b}]
}

func (w *world) disturbGateway(k kind) {
	g, ok := oneOf(w.fate, w.gateways)
	if !ok {
		return
	}
	switch k {
	case extprocKilled:
		g.killExtproc()
	case extprocCut:
		g.cutOff(w.fated(time.Second, 50*time.Second))
	case envoyDeaf:
		if !g.plain {
			g.deafen(w.fated(time.Second, 40*time.Second))
		}
	case gatewayStops:
		w.stopGateway(g)
		w.startGateway(g.plain)
	case gatewayKilled:
		w.killGateway(g)
		w.startGateway(g.plain)
	}
}

func (w *world) disturbRest(k kind) {
	d, _ := oneOf(w.fate, w.pools)
	f, _ := oneOf(w.fate, w.functions)
	switch k {
	case poolRolls:
		w.roll(d)
	case poolShrinks:
		w.resize(d, int32(1+w.fate.IntN(3)))
		w.after(w.fated(time.Second, 20*time.Second), func() { w.resize(d, 6) })
	case metadataChanges:
		f.metadata, f.others = fmt.Sprint("v", 1+w.fate.IntN(3)), ""
	case metadataContested:
		f.others = "other"
		w.after(w.fated(5*time.Second, time.Minute), func() { f.others = "" })
	case apiDown:
		w.troubleAPI(&w.api.downTil)
	case apiSlow:
		w.troubleAPI(&w.api.slowTil)
	case functionBad:
		w.setBad(f, true)
		w.after(w.fated(time.Second, 20*time.Second), func() { w.setBad(f, false) })
	case loadChanges:
		w.changeLoad(f)
	}
}

func (w *world) troubleAPI(til *time.Time) {
	d := w.fated(time.Second, 10*time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	*til = time.Now().Add(d)
}

func (w *world) setBad(f *function, bad bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.bad = bad
}

// calmDown lets everything work again, with steady traffic.
func (w *world) calmDown() {
	w.say("world", "calm")
	w.mu.Lock()
	w.calm, w.calmAt = true, time.Now()
	w.api.downTil, w.api.slowTil = time.Time{}, time.Time{}
	clear(w.links)
	for _, f := range w.functions {
		f.bad, f.others = false, ""
	}
	for _, r := range w.replicas {
		r.lag, r.frozenTil = 50*time.Millisecond, time.Time{}
	}
	w.mu.Unlock()
	for _, d := range w.pools {
		w.resize(d, 8)
	}
	if len(w.replicas) == 0 {
		w.startReplica()
	}
	for _, g := range w.gateways {
		g.cutTil, g.deafTil = time.Time{}, time.Time{}
		w.after(time.Second, g.startExtproc)
	}
	for _, r := range w.requests(func(*request) bool { return true }) {
		w.after(w.upTo(0, leaveWithin), func() { w.finish(r, "") }) // its client leaves
	}
	for _, f := range w.functions {
		f.steady = []int{0, 1, 2, 4, 8}[w.fate.IntN(5)]
		if f.key.Oneshot {
			f.steady = min(f.steady, 1)
		}
		w.hold(f)
	}
}

// hold keeps the steady number of requests in progress. A client whose pod drains
// asks its gateway again: one that went to another would count at both until the
// first has spoken, which may be one too many for as long as the world lasts.
func (w *world) hold(f *function) {
	var all []*request
	w.every(500*time.Millisecond, func() bool {
		kept, moved := all[:0], []*gateway(nil)
		for _, r := range all {
			if w.resting || w.drains(r.uid) {
				w.finish(r, "") // its client leaves rather than be cut off
				moved = append(moved, r.ep.g)
			}
			if !r.done {
				kept = append(kept, r)
			}
		}
		all = kept
		for !w.resting && len(all) < f.steady {
			takes := steadyFor
			if f.key.Oneshot {
				takes = min(takes, w.upTo(3*time.Second, 40*time.Second))
			}
			r := w.arriveAt(f, takes, moved)
			if r == nil {
				break
			}
			all, moved = append(all, r), moved[min(1, len(moved)):]
		}
		return !w.resting
	})
}

// end takes the world apart.
func (w *world) end() {
	for _, g := range w.gateways {
		g.ended = true
		if g.ep != nil {
			g.ep.kill()
		}
	}
	w.mu.Lock()
	all := w.oracle.replicas
	w.mu.Unlock()
	for _, r := range all {
		r.kill()
		r.tasks.Wait()
	}
	w.calls.Wait()
}
