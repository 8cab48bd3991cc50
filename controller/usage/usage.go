// Package usage knows how much CPU and memory the instances use, from the
// metrics API (metrics.k8s.io).
//
// A Reader lists the pod metrics of each function namespace once per interval,
// however many functions there are, and answers from the latest list. It owns
// that list. Without a metrics API it knows nothing, says so once in the log,
// and goes on asking.
package usage

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"

	"skipper/controller/pool"
)

const (
	// longestList bounds one list.
	longestList = 10 * time.Second
	// maxPods is how many pods of one namespace are remembered, twice what a
	// replica must carry (design section 6).
	maxPods = 100_000
	// missedLists is how many lists in a row may fail before the latest one is
	// too old to be used, and shortestAge what it may have in any case.
	missedLists = 3
	shortestAge = time.Minute
	// claimed selects the pods that are instances; pods that wait in pools are
	// not read.
	claimed = pool.LabelDeployment + "," + pool.LabelTenant
)

// Usage is what one pod used, its containers summed up.
type Usage struct {
	CPUMilli, MemoryMiB uint32
	// At is the end of Window, over which the CPU was measured, by the clock of
	// the metrics API.
	At     time.Time
	Window time.Duration
}

// Config of a Reader; all fields are required unless marked optional.
type Config struct {
	// Client reads the metrics API. Optional: nil reads nothing.
	Client     metricsclient.PodMetricsesGetter
	Namespaces []string
	// Interval between two lists of a namespace, give or take a tenth.
	Interval   time.Duration
	Registerer prometheus.Registerer
	Log        *zap.Logger
}

// Reader reads usage. Safe for concurrent use; only Run waits for the network.
type Reader struct {
	cfg     Config
	log     *zap.Logger
	metrics metrics

	mu         sync.RWMutex
	namespaces map[string]*namespace // keys are fixed, values guarded by mu
}

// namespace is what is known of one.
type namespace struct {
	pods   map[string]Usage // by name; replaced, never changed
	readAt time.Time        // of pods; zero: never
	failed string           // cause of the latest failure; empty: none since pods
}

// New returns a Reader that knows nothing until Run runs.
func New(cfg Config) *Reader {
	r := &Reader{cfg: cfg, log: cfg.Log.Named("usage"), namespaces: map[string]*namespace{}}
	for _, ns := range cfg.Namespaces {
		r.namespaces[ns] = &namespace{}
	}
	r.metrics = newMetrics(cfg.Registerer, r)
	return r
}

// Run reads until the context ends.
func (r *Reader) Run(ctx context.Context) error {
	if r.cfg.Client == nil {
		return nil
	}
	for {
		for _, ns := range r.cfg.Namespaces {
			r.read(ctx, ns)
		}
		t := time.NewTimer(r.cfg.Interval*9/10 + rand.N(r.cfg.Interval/5+1))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
	}
}

func (r *Reader) read(ctx context.Context, ns string) {
	bounded, cancel := context.WithTimeout(ctx, min(longestList, r.cfg.Interval))
	defer cancel()
	list, err := r.cfg.Client.PodMetricses(ns).List(bounded, metav1.ListOptions{LabelSelector: claimed})
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		r.failed(ns, err)
		return
	}
	r.succeeded(ns, usages(list.Items), time.Now())
}

func usages(items []metricsv1beta1.PodMetrics) map[string]Usage {
	pods := make(map[string]Usage, min(len(items), maxPods))
	for i := range items {
		if len(pods) == maxPods {
			break
		}
		pods[items[i].Name] = sum(&items[i])
	}
	return pods
}

func (r *Reader) succeeded(ns string, pods map[string]Usage, now time.Time) {
	r.metrics.lists.WithLabelValues("ok").Inc()
	r.mu.Lock()
	n := r.namespaces[ns]
	news := n.readAt.IsZero() || n.failed != ""
	n.pods, n.readAt, n.failed = pods, now, ""
	r.mu.Unlock()
	if news {
		r.log.Info("pod metrics are read", zap.String("namespace", ns), zap.Int("instances", len(pods)))
	}
}

// failed says each cause once, until it has worked again.
func (r *Reader) failed(ns string, err error) {
	cause := advice(err)
	r.metrics.lists.WithLabelValues("failed").Inc()
	r.mu.Lock()
	n := r.namespaces[ns]
	news := n.failed != cause
	n.failed = cause
	r.mu.Unlock()
	if news {
		r.log.Warn("pod metrics cannot be read: CPU and memory do not change the number of instances",
			zap.String("namespace", ns), zap.String("do", cause), zap.Error(err))
	}
}

// advice is what to do about the error; the same for the same cause.
func advice(err error) string {
	switch {
	case apierrors.IsNotFound(err):
		return "install a metrics API (metrics-server), or scale on requests in flight"
	case apierrors.IsForbidden(err):
		return "grant the controller list of pods in API group metrics.k8s.io"
	}
	return "see whether the metrics API (metrics-server) is healthy"
}

// Metered tells whether the metrics API has ever answered for the namespace, so
// that a function that is not measured now may be so later.
func (r *Reader) Metered(ns string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n := r.namespaces[ns]
	return n != nil && !n.readAt.IsZero()
}

// Of is what the pod used lately; false where that is not known, or known only
// from a list that is too old.
func (r *Reader) Of(ns, pod string, now time.Time) (Usage, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n := r.namespaces[ns]
	if n == nil || now.Sub(n.readAt) > r.oldest() {
		return Usage{}, false
	}
	u, ok := n.pods[pod]
	return u, ok
}

func (r *Reader) oldest() time.Duration { return max(shortestAge, missedLists*r.cfg.Interval) }

// sum adds the pod's containers up; rounded up, so that what is used is not 0.
func sum(p *metricsv1beta1.PodMetrics) Usage {
	const mib = 1 << 20
	var milli, bytes uint64
	for _, c := range p.Containers {
		if cores := c.Usage.Cpu(); cores.Value() > math.MaxUint32/1000 {
			milli = math.MaxUint32 // in thousandths it may not even fit into 64 bits
		} else {
			milli += uint64(max(0, cores.MilliValue()))
		}
		bytes += uint64(max(0, c.Usage.Memory().Value()))
	}
	return Usage{
		CPUMilli: bounded(milli), MemoryMiB: bounded((bytes + mib - 1) / mib),
		At: p.Timestamp.UTC(), Window: p.Window.Duration,
	}
}

func bounded(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

// String is for logs.
func (u Usage) String() string {
	return fmt.Sprintf("%dm, %dMiB over %s", u.CPUMilli, u.MemoryMiB, u.Window)
}
