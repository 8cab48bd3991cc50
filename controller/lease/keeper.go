// Package lease keeps one Lease object for each extproc that has instances in
// its table, so that controllers which start after all others have gone know
// who may still use what those told it.
//
// Its renew time is when the extproc was last in step: with the informers of
// the controller that it is connected to, and that controller with the API
// server. That controller renews it; whoever hears its goodbye deletes it.
package lease

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

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
	// FreshAt is a time up to which this replica knows all pods; zero: none.
	FreshAt    func() time.Time
	Registerer prometheus.Registerer
	Log        *zap.Logger
}

// Keeper writes Leases. Safe for concurrent use.
type Keeper struct {
	cfg     Config
	log     *zap.Logger
	writes  *prometheus.CounterVec
	goodbye chan string
	held    map[string]*coordinationv1.Lease // last known, by node; belongs to Run
	failing bool                             // the last write failed; belongs to Run
}

// New returns a Keeper that writes nothing before Run.
func New(cfg Config) *Keeper {
	k := &Keeper{
		cfg: cfg, log: cfg.Log.Named("lease"), goodbye: make(chan string, farewells), held: map[string]*coordinationv1.Lease{},
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_leases_writes_total",
			Help: "Writes of extprocs' Leases by kind (renew, delete) and outcome.",
		}, []string{"kind", "outcome"}),
	}
	cfg.Registerer.MustRegister(k.writes)
	return k
}

// Read lists when each extproc was last in step, by node, leaving out those
// whose tables have expired.
func (k *Keeper) Read(ctx context.Context) (map[string]time.Time, error) {
	out := map[string]time.Time{}
	err := k.each(ctx, func(l *coordinationv1.Lease) {
		if node, inStep, ok := read(l); ok && time.Since(inStep) < 2*k.cfg.Staleness {
			out[node] = inStep
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
			return nil
		case node := <-k.goodbye:
			k.said("delete", node, k.remove(ctx, nameOf(node)))
			delete(k.held, node)
		case <-collect.C:
			k.collect(ctx)
		case <-tick.C:
			k.renewAll(ctx)
		}
	}
}

// renewAll renews what is due, and forgets who is not connected any more: that
// extproc's next controller goes on.
func (k *Keeper) renewAll(ctx context.Context) {
	inStep := due(k.cfg.Subscribers(), k.cfg.FreshAt())
	for node := range k.held {
		if _, connected := inStep[node]; !connected {
			delete(k.held, node)
		}
	}
	for node, at := range inStep {
		if l := k.held[node]; l != nil && at.Sub(l.Spec.RenewTime.Time) < k.cfg.Staleness/renewals {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		k.said("renew", node, k.renew(ctx, node, at))
	}
}

// due is when each connected extproc with instances in its table was last in
// step, as far as this replica can tell.
func due(all []server.Subscriber, fresh time.Time) map[string]time.Time {
	out := map[string]time.Time{}
	for _, s := range all {
		if s.Type != "instances" || s.Names == 0 || s.QuietAt.IsZero() || fresh.IsZero() || !strings.HasPrefix(s.Node, "extproc/") {
			continue
		}
		at := s.QuietAt
		if fresh.Before(at) {
			at = fresh
		}
		if before, twice := out[s.Node]; !twice || at.Before(before) {
			out[s.Node] = at
		}
	}
	return out
}

// renew writes the Lease, which another controller may have written meanwhile.
func (k *Keeper) renew(ctx context.Context, node string, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	wanted := newLease(k.cfg.Namespace, node, at, k.cfg.Staleness)
	leases := k.cfg.Leases.Leases(k.cfg.Namespace)
	written, err := k.update(ctx, wanted)
	if apierrors.IsNotFound(err) {
		written, err = leases.Create(ctx, wanted, metav1.CreateOptions{})
	}
	if err != nil {
		delete(k.held, node)
		return fmt.Errorf("write lease %s: %w", wanted.Name, err)
	}
	k.held[node] = written
	return nil
}

func (k *Keeper) update(ctx context.Context, wanted *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	leases := k.cfg.Leases.Leases(k.cfg.Namespace)
	known := k.held[*wanted.Spec.HolderIdentity]
	if known == nil {
		read, err := leases.Get(ctx, wanted.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		known = read
	}
	if known.Spec.RenewTime != nil && known.Spec.RenewTime.After(wanted.Spec.RenewTime.Time) {
		return known, nil
	}
	next := known.DeepCopy()
	next.Labels, next.Spec = wanted.Labels, wanted.Spec
	return leases.Update(ctx, next, metav1.UpdateOptions{})
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
		if _, inStep, ok := read(l); !ok || time.Since(inStep) > 4*k.cfg.Staleness {
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
