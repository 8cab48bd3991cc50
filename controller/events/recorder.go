package events

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	skipperpb "skipper/proto"
)

const (
	// component is who tells, in Kubernetes' words.
	component = "skipper-controller"
	// The rate leaves the background client's budget (--kubeconfig-qps) to what
	// changes the cluster.
	perSecond, burst = 10, 50
	// waitingMost is a burst of events that comes while one is being written;
	// what does not fit is dropped.
	waitingMost = 256
	// writeTimeout bounds one write.
	writeTimeout = 5 * time.Second
	// complainEvery is how often a write that fails is logged.
	complainEvery = time.Minute
)

// What became of an event for Kubernetes: values of the label outcome.
const (
	written = "written"
	limited = "limited"
	dropped = "dropped"
	failed  = "failed"
)

// RecorderConfig of a Recorder; all fields are required.
type RecorderConfig struct {
	// Events writes them.
	Events corev1client.EventsGetter
	// ControllerIP is this replica's.
	ControllerIP string
	Registerer   prometheus.Registerer
	Log          *zap.Logger
}

// Recorder writes events about pods to the pods' namespace. Equal events become
// one that counts. Safe for concurrent use.
type Recorder struct {
	cfg      RecorderConfig
	log      *zap.Logger
	outcomes *prometheus.CounterVec
	waiting  chan *skipperpb.Event // at most waitingMost; what comes then is dropped

	// The rest belongs to Run.
	correlator *record.EventCorrelator
	limit      *rate.Limiter
	complain   *rate.Sometimes
}

// NewRecorder returns a Recorder that writes while Run runs.
func NewRecorder(cfg RecorderConfig) *Recorder {
	r := &Recorder{
		cfg: cfg, log: cfg.Log.Named("events"), waiting: make(chan *skipperpb.Event, waitingMost),
		correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{}),
		limit:      rate.NewLimiter(perSecond, burst),
		complain:   &rate.Sometimes{First: 1, Interval: complainEvery},
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skipper_controller_kubernetes_events_total",
			Help: "Events about pods by what became of them: written to Kubernetes, limited (too many in a short time), dropped (Kubernetes took them too slowly), failed. Those lost are still in GetClusterState.",
		}, []string{"outcome"}),
	}
	for _, o := range []string{written, limited, dropped, failed} {
		r.outcomes.WithLabelValues(o)
	}
	cfg.Registerer.MustRegister(r.outcomes)
	return r
}

// Offer takes an event, which nobody changes from then on. One that is about no
// pod is none for Kubernetes. It never waits.
func (r *Recorder) Offer(e *skipperpb.Event) {
	if e.GetInstanceName() == "" || e.GetInstanceUid() == "" {
		return
	}
	select {
	case r.waiting <- e:
	default:
		r.outcomes.WithLabelValues(dropped).Inc()
	}
}

// Run writes events until the context ends; what is left then is lost.
func (r *Recorder) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-r.waiting:
			r.outcomes.WithLabelValues(r.record(ctx, e)).Inc()
		}
	}
}

// record returns the outcome.
func (r *Recorder) record(ctx context.Context, e *skipperpb.Event) string {
	if !r.limit.Allow() {
		return limited
	}
	result, err := r.correlator.EventCorrelate(forKubernetes(e, r.cfg.ControllerIP))
	if err == nil && result.Skip {
		return limited
	}
	if err == nil {
		err = r.write(ctx, result)
	}
	if err == nil {
		return written
	}
	r.complain.Do(func() {
		r.log.Warn("event is not in Kubernetes: let the controller create and patch events in its function namespaces, if it may not",
			zap.String("pod", e.GetFunction().GetNamespace()+"/"+e.GetInstanceName()), zap.Stringer("type", e.GetType()), zap.Error(err))
	})
	return failed
}

// write makes the event, or has the one that is there count once more.
func (r *Recorder) write(ctx context.Context, result *record.EventCorrelateResult) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	events := r.cfg.Events.Events(result.Event.Namespace)
	if result.Event.Count > 1 {
		kept, err := events.Patch(ctx, result.Event.Name, types.StrategicMergePatchType, result.Patch, metav1.PatchOptions{})
		if err == nil {
			r.correlator.UpdateState(kept)
			return nil
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("patch event %s: %w", result.Event.Name, err)
		}
	}
	result.Event.ResourceVersion = "" // of the one that is gone
	made, err := events.Create(ctx, result.Event, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create event %s: %w", result.Event.Name, err)
	}
	if err == nil {
		r.correlator.UpdateState(made)
	}
	return nil
}

// forKubernetes is the event in Kubernetes' words.
func forKubernetes(e *skipperpb.Event, controllerIP string) *corev1.Event {
	at := metav1.NewTime(e.GetTimestamp().AsTime())
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.GetFunction().GetNamespace(),
			Name:      fmt.Sprintf("%s.%x", e.GetInstanceName(), at.UnixNano()),
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: e.GetFunction().GetNamespace(),
			Name: e.GetInstanceName(), UID: types.UID(e.GetInstanceUid()),
		},
		Reason: reasonOf(e.GetType()), Message: e.GetMessage(), Type: kubernetesType(e.GetSeverity()),
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		Source:              corev1.EventSource{Component: component, Host: controllerIP},
		ReportingController: component, ReportingInstance: controllerIP,
	}
}

// reasonOf is the type in the form that Kubernetes has reasons in: PodAssigned.
func reasonOf(t skipperpb.EventType) string {
	words := strings.Split(labelOf(t), "_")
	for i, w := range words {
		words[i] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}

func kubernetesType(s skipperpb.EventSeverity) string {
	if s == skipperpb.EventSeverity_EVENT_SEVERITY_WARN {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}
