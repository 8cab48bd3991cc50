package events_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"skipper/controller/events"
	skipperpb "skipper/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recording is a running recorder over an API server.
type recording struct {
	*events.Recorder
	api      *fake.Clientset
	registry *prometheus.Registry
	stop     func()
}

// record must be called in a bubble.
func record(t *testing.T, prepare func(*fake.Clientset)) *recording {
	t.Helper()
	r := &recording{api: fake.NewClientset(), registry: prometheus.NewRegistry()}
	if prepare != nil {
		prepare(r.api)
	}
	r.Recorder = events.NewRecorder(events.RecorderConfig{
		Events: r.api.CoreV1(), ControllerIP: "10.0.0.1", Registerer: r.registry, Log: zap.NewNop(),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	}
	return r
}

// outcomes is the counter as "dropped 0, failed 0, ...".
func (r *recording) outcomes(t *testing.T) string {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range families[0].GetMetric() {
		out = append(out, fmt.Sprint(m.GetLabel()[0].GetValue(), " ", m.GetCounter().GetValue()))
	}
	return strings.Join(out, ", ")
}

func ofPod(name, message string) *skipperpb.Event {
	l := events.NewLog(events.Config{Registerer: prometheus.NewRegistry()})
	l.Add(&skipperpb.Event{
		Type: skipperpb.EventType_EVENT_TYPE_DRAIN_TIMEOUT, Severity: warn, Message: message,
		Function:     &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "t"},
		InstanceName: name, InstanceUid: "uid-" + name,
	})
	return l.Events()[0]
}

// shown is what whoever describes a pod sees of an event, but for the times.
func shown(e corev1.Event) corev1.Event {
	return corev1.Event{
		Count: e.Count, Reason: e.Reason, Type: e.Type, Message: e.Message,
		InvolvedObject: corev1.ObjectReference{Kind: e.InvolvedObject.Kind, Name: e.InvolvedObject.Name, UID: e.InvolvedObject.UID},
		Source:         e.Source,
	}
}

func TestEventsStandOnPodsAndEqualOnesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record(t, nil)
		r.Offer(ofPod("echo-1", "cut"))
		r.Offer(&skipperpb.Event{Message: "about no pod"})
		synctest.Wait()
		r.Offer(ofPod("echo-1", "cut"))
		synctest.Wait()
		r.stop()
		list, err := r.api.CoreV1().Events("prod").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("%d events, %v, want one", len(list.Items), err)
		}
		want := corev1.Event{
			Count: 2, Reason: "DrainTimeout", Type: corev1.EventTypeWarning, Message: "cut",
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "echo-1", UID: "uid-echo-1"},
			Source:         corev1.EventSource{Component: "skipper-controller", Host: "10.0.0.1"},
		}
		if diff := cmp.Diff(want, shown(list.Items[0])); diff != "" {
			t.Errorf("event (-want +got):\n%s", diff)
		}
		if got := r.outcomes(t); got != "dropped 0, failed 0, limited 0, written 2" {
			t.Errorf("outcomes: %s", got)
		}
	})
}

// An API server that hangs costs events, and nobody's time.
func TestOfferNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		r := record(t, func(api *fake.Clientset) {
			api.PrependReactor("create", "events", func(k8stesting.Action) (bool, runtime.Object, error) {
				<-hang
				return true, nil, errors.New("hung up")
			})
		})
		r.Offer(ofPod("echo-0", "m"))
		synctest.Wait() // it is being written
		for i := range 1000 {
			r.Offer(ofPod(fmt.Sprint("echo-", i), "m"))
		}
		if got := r.outcomes(t); got != "dropped 744, failed 0, limited 0, written 0" {
			t.Errorf("outcomes: %s, want all dropped but one queue", got)
		}
		close(hang)
		synctest.Wait()
		r.stop()
		if got := r.outcomes(t); got != "dropped 744, failed 50, limited 207, written 0" {
			t.Errorf("outcomes: %s, want a burst tried and the rest limited", got)
		}
		if n := testutil.CollectAndCount(r.registry); n != 4 {
			t.Errorf("%d series", n)
		}
	})
}
