package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"skipper/controller/pool"
)

// Resync is how often informers show everything again (contract section 4).
const Resync = 5 * time.Minute

// Config of a Watch. All fields are required unless marked optional.
type Config struct {
	Client kubernetes.Interface
	// FunctionNamespaces are watched for function pods and ReplicaSets.
	FunctionNamespaces []string
	View               *pool.View
	Functions          *pool.Parser
	// OwnNamespace and OwnSelector, a label selector, find the controller's
	// replicas.
	OwnNamespace, OwnSelector string
	// OwnPods is called with all replicas, ordered by IP, at every change of
	// them; one call at a time. It must be quick. Optional: nil means that the
	// replicas are not watched.
	OwnPods    func([]Member)
	Registerer prometheus.Registerer
	Log        *zap.Logger
}

// Watch runs the informers.
type Watch struct {
	cfg       Config
	log       *zap.Logger
	metrics   *metrics
	informers []cache.SharedIndexInformer
	handlers  []cache.ResourceEventHandlerRegistration
	probes    []*probe // of the function namespaces' pods
}

// New prepares the informers; nothing is asked of the API server before Run.
func New(cfg Config) (*Watch, error) {
	w := &Watch{cfg: cfg, log: cfg.Log.Named("watch")}
	w.metrics = newMetrics(cfg.Registerer, w.Frozen)
	for _, ns := range cfg.FunctionNamespaces {
		pods := w.factory(ns, pool.LabelDeployment).Core().V1().Pods().Informer()
		sets := w.factory(ns, "").Apps().V1().ReplicaSets().Informer()
		w.probes = append(w.probes, w.newProbe(ns, pods.LastSyncResourceVersion))
		if err := errors.Join(w.add(pods, w.podHandler()), w.add(sets, w.replicaSetHandler())); err != nil {
			return nil, fmt.Errorf("watch namespace %s: %w", ns, err)
		}
	}
	if cfg.OwnPods == nil {
		return w, nil
	}
	own := w.factory(cfg.OwnNamespace, cfg.OwnSelector).Core().V1().Pods().Informer()
	if err := w.add(own, w.ownHandler(own.GetStore())); err != nil {
		return nil, fmt.Errorf("watch own pods in namespace %s: %w", cfg.OwnNamespace, err)
	}
	return w, nil
}

func (w *Watch) factory(namespace, selector string) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(w.cfg.Client, Resync,
		informers.WithNamespace(namespace),
		informers.WithTransform(w.strip),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }))
}

func (w *Watch) add(i cache.SharedIndexInformer, h cache.ResourceEventHandler) error {
	if err := i.SetWatchErrorHandlerWithContext(w.watchFailed); err != nil {
		return fmt.Errorf("set error handler: %w", err)
	}
	registration, err := i.AddEventHandler(h)
	if err != nil {
		return fmt.Errorf("add handler: %w", err)
	}
	w.informers = append(w.informers, i)
	w.handlers = append(w.handlers, registration)
	return nil
}

// watchFailed says why an informer has to list again, which it does on its own
// after a pause. A watch that the API server ends in good order is none of it.
func (w *Watch) watchFailed(ctx context.Context, r *cache.Reflector, err error) {
	if ctx.Err() != nil || errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		w.log.Debug("watch ended", zap.String("what", r.TypeDescription()), zap.Error(err))
		return
	}
	w.log.Warn("list or watch", zap.String("what", r.TypeDescription()), zap.Error(err))
}

// HasSynced says that everything which was there at the start has been handed on.
func (w *Watch) HasSynced() bool {
	for _, h := range w.handlers {
		if !h.HasSynced() {
			return false
		}
	}
	return true
}

// WaitSynced returns when HasSynced is true, or with the context's error.
func (w *Watch) WaitSynced(ctx context.Context) error {
	synced := make([]cache.InformerSynced, len(w.handlers))
	for i, h := range w.handlers {
		synced[i] = h.HasSynced
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("wait for the initial lists of pods and ReplicaSets (may the controller list and watch them?): %w", ctx.Err())
	}
	return nil
}

// Run runs the informers until the context ends, and returns after all of them
// have ended.
func (w *Watch) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, i := range w.informers {
		running.Go(func() { i.RunWithContext(ctx) })
	}
	for _, p := range w.probes {
		running.Go(func() { w.watchOver(ctx, p) })
	}
	running.Wait()
	return nil
}
