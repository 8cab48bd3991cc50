// Package lease keeps one Lease object for each extproc that has instances in
// its table, so that controllers which start after all others have gone know
// who may still use what those told it.
//
// Its renew time is when the extproc was last seen connected to a controller,
// its acquire time when it was last in step: with what that controller knew,
// and that controller with the API server. That controller renews it; whoever
// hears its goodbye deletes it.
package lease

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"skipper/xds"
	"skipper/xds/server"
)

const (
	// renewals in the time that a table is used; see Config.Staleness.
	renewals = 10
	// look is how often new extprocs are looked for.
	look = time.Second
	// attemptTimeout bounds one request.
	attemptTimeout = 5 * time.Second
	// pageSize of lists.
	pageSize = 500
	// farewells that wait to be carried out; beyond, the collection of expired
	// Leases does it.
	farewells = 256
	// unnoticed is how long a stream may seem open whose client has gone: who is
	// connected for longer after a goodbye is there after all.
	unnoticed = 30 * time.Second
	// maxParted bounds the goodbyes that are remembered; beyond, a Lease that is
	// renewed after one is left to the collection.
	maxParted = 4096
	// lastWrites bounds what is carried out after the end.
	lastWrites = time.Second
)

// Config of a Keeper. All fields are required.
type Config struct {
	Leases coordinationv1client.LeasesGetter
	// Namespace of the controllers, and of the Leases.
	Namespace string
	// Staleness is how long an extproc uses its table without a controller.
	Staleness time.Duration
	// Subscribers of this replica: server.Server.Subscribers.
	Subscribers func() []server.Subscriber
	// GatewayOf is the Envoy that an extproc serves, and the IP of the pod that
	// both are in; empty: unknown.
	GatewayOf func(node string) (envoy, ip string)
	// FreshAt is a time up to which this replica knows all pods; zero: none.
	FreshAt    func() time.Time
	Registerer prometheus.Registerer
	Log        *zap.Logger
}

// State is what a Lease says of an extproc.
type State struct {
	Node string
	// InStep is when it was last known to have acknowledged everything; zero:
	// never yet.
	InStep time.Time
	// Envoy is the node id of the Envoy that it serves, and IP that of the pod
	// that both are in; empty: unknown.
	Envoy, IP string
	// Connected is when it was last known to be connected. It may have been for
	// Slack longer.
	Connected time.Time
}

// Slack is for how long after its last renewal an extproc may have been
// connected, with time to write.
func (k *Keeper) Slack() time.Duration { return k.cfg.Staleness/renewals + 2*attemptTimeout }

// Keeper writes Leases. Safe for concurrent use.
type Keeper struct {
	cfg     Config
	log     *zap.Logger
	writes  *prometheus.CounterVec
	goodbye chan string

	// What follows belongs to Run.
	held    map[string]*coordinationv1.Lease // last known, by node
	parted  map[string]parting               // who said goodbye, by node
	failing bool                             // the last write failed
}

// parting is a goodbye. The stream of who said it may end a moment later, which
// must not renew the Lease.
type parting struct {
	at      time.Time
	deleted bool
}

// New returns a Keeper that writes nothing before Run.
func New(cfg Config) *Keeper {
	k := &Keeper{
		cfg: cfg, log: cfg.Log.Named("lease"), goodbye: make(chan string, farewells),
		held: map[string]*coordinationv1.Lease{}, parted: map[string]parting{},
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_leases_writes_total",
			Help: "Writes of extprocs' Leases by kind (renew, delete) and outcome.",
		}, []string{"kind", "outcome"}),
	}
	for _, kind := range []string{"renew", "delete"} {
		for _, outcome := range []string{"done", "failed"} {
			k.writes.WithLabelValues(kind, outcome)
		}
	}
	cfg.Registerer.MustRegister(k.writes)
	return k
}

// Read lists what is known of each extproc whose table may not have expired.
func (k *Keeper) Read(ctx context.Context) ([]State, error) {
	var out []State
	err := k.each(ctx, func(l *coordinationv1.Lease) {
		if s, ok := read(l); ok && time.Since(s.Connected) < 2*k.cfg.Staleness {
			out = append(out, s)
		}
	})
	return out, err
}

func (k *Keeper) each(ctx context.Context, f func(*coordinationv1.Lease)) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	options := metav1.ListOptions{LabelSelector: Label + "=" + LabelValue, Limit: pageSize}
	for {
		list, err := k.cfg.Leases.Leases(k.cfg.Namespace).List(ctx, options)
		if err != nil {
			return fmt.Errorf("list leases in namespace %s: %w", k.cfg.Namespace, err)
		}
		for i := range list.Items {
			f(&list.Items[i])
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

// Goodbye has the Lease of a node deleted, soon.
func (k *Keeper) Goodbye(node string) {
	select {
	case k.goodbye <- node:
	default:
	}
}

// Run renews, deletes and collects until the context ends.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	collect := time.NewTicker(k.cfg.Staleness)
	defer collect.Stop()
	for {
		select {
		case <-ctx.Done():
			k.finish(ctx)
			return nil
		case node := <-k.goodbye:
			k.part(ctx, node, time.Now())
		case <-collect.C:
			k.collect(ctx)
		case <-tick.C:
			k.partAgain(ctx)
			k.renewAll(ctx)
		}
	}
}

// finish carries out the goodbyes that were said before the end.
func (k *Keeper) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrites)
	defer cancel()
	for {
		select {
		case node := <-k.goodbye:
			k.part(ctx, node, time.Now())
		default:
			return
		}
	}
}

// part deletes the Lease of a node that said goodbye.
func (k *Keeper) part(ctx context.Context, node string, at time.Time) {
	err := k.remove(ctx, nameOf(node))
	k.said("delete", node, err)
	delete(k.held, node)
	if _, again := k.parted[node]; again || len(k.parted) < maxParted {
		k.parted[node] = parting{at, err == nil}
	}
}

// partAgain deletes what could not be deleted, and forgets goodbyes that are
// long past.
func (k *Keeper) partAgain(ctx context.Context) {
	now := time.Now()
	for node, p := range k.parted {
		switch {
		case now.Sub(p.at) > k.cfg.Staleness:
			delete(k.parted, node)
		case !p.deleted:
			if k.part(ctx, node, p.at); k.failing {
				return // so will the others
			}
		}
	}
}

// renewAll renews what is due, and forgets who is not connected any more: that
// extproc's next controller goes on.
func (k *Keeper) renewAll(ctx context.Context) {
	now := time.Now()
	subscribers := k.cfg.Subscribers()
	connected := connectedNow(subscribers, k.cfg.FreshAt(), now)
	for node := range k.held {
		switch _, still := connected[node]; {
		case still:
		case empty(subscribers, node):
			k.said("delete", node, k.remove(ctx, nameOf(node)))
			delete(k.held, node)
		default:
			delete(k.held, node)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(connected)) {
		if p, bye := k.parted[node]; bye && now.Sub(p.at) < unnoticed {
			continue
		}
		if l := k.held[node]; l != nil && now.Sub(l.Spec.RenewTime.Time) < k.cfg.Staleness/renewals {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		delete(k.parted, node)
		k.said("renew", node, k.renew(ctx, connected[node]))
	}
}

// empty says that the extproc is connected, and has no instances in its table.
func empty(all []server.Subscriber, node string) bool {
	here := false
	for _, s := range all {
		if s.Type == "instances" && s.Node == node {
			here = true
			if s.Names > 0 {
				return false
			}
		}
	}
	return here
}

// connectedNow is the state of each connected extproc with instances in its
// table, as far as this replica can tell. Of several streams, the last counts.
func connectedNow(all []server.Subscriber, fresh, now time.Time) map[string]State {
	out := map[string]State{}
	for _, s := range all {
		if s.Type != "instances" || s.Names == 0 || !strings.HasPrefix(s.Node, xds.ExtprocPrefix) {
			continue
		}
		at := s.QuietAt
		if fresh.Before(at) {
			at = fresh
		}
		if before, twice := out[s.Node]; twice && before.InStep.Before(at) {
			at = before.InStep
		}
		out[s.Node] = State{Node: s.Node, InStep: at, Connected: now}
	}
	return out
}

// renew writes the Lease, which another controller may have written meanwhile.
func (k *Keeper) renew(ctx context.Context, s State) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	s.Envoy, s.IP = k.cfg.GatewayOf(s.Node)
	wanted := newLease(k.cfg.Namespace, s, k.cfg.Staleness)
	written, err := k.update(ctx, s.Node, wanted)
	if apierrors.IsNotFound(err) {
		written, err = k.cfg.Leases.Leases(k.cfg.Namespace).Create(ctx, wanted, metav1.CreateOptions{})
	}
	if err != nil {
		delete(k.held, s.Node)
		return fmt.Errorf("write lease %s: %w", wanted.Name, err)
	}
	k.held[s.Node] = written
	return nil
}

func (k *Keeper) update(ctx context.Context, node string, wanted *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	leases := k.cfg.Leases.Leases(k.cfg.Namespace)
	known := k.held[node]
	if known == nil {
		found, err := leases.Get(ctx, wanted.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		known = found
	}
	next := known.DeepCopy()
	next.Labels, next.Annotations, next.Spec = wanted.Labels, wanted.Annotations, wanted.Spec
	if before, ok := read(known); ok {
		next.Spec.AcquireTime = later(before.InStep, wanted.Spec.AcquireTime)
		next.Spec.RenewTime = later(before.Connected, wanted.Spec.RenewTime)
		if before.Envoy != "" && wanted.Annotations[envoyAnnotation] == "" {
			next.Annotations = known.Annotations
		}
	}
	return leases.Update(ctx, next, metav1.UpdateOptions{})
}

// later keeps a Lease from going back in time where clocks differ.
func later(a time.Time, b *metav1.MicroTime) *metav1.MicroTime {
	if a.After(b.Time) {
		return &metav1.MicroTime{Time: a}
	}
	return b
}

func (k *Keeper) remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	err := k.cfg.Leases.Leases(k.cfg.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete lease %s: %w", name, err)
	}
	return nil
}

// collect deletes Leases that say nothing any more.
func (k *Keeper) collect(ctx context.Context) {
	var expired []string
	err := k.each(ctx, func(l *coordinationv1.Lease) {
		if s, ok := read(l); !ok || time.Since(s.Connected) > 4*k.cfg.Staleness {
			expired = append(expired, l.Name)
		}
	})
	if err != nil {
		k.said("delete", "", err)
	}
	slices.Sort(expired)
	for _, name := range expired {
		k.said("delete", name, k.remove(ctx, name))
	}
}

// said counts a write; the first failure in a row is logged.
func (k *Keeper) said(kind, what string, err error) {
	outcome := "done"
	if err != nil {
		outcome = "failed"
	}
	if err != nil && !k.failing {
		k.log.Warn("Leases of extprocs cannot be written: may the controller get, list, create, update and delete leases in its namespace?",
			zap.String("kind", kind), zap.String("what", what), zap.Error(err))
	}
	k.failing = err != nil
	k.writes.WithLabelValues(kind, outcome).Inc()
}
