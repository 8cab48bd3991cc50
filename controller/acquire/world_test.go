package acquire

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"skipper/controller/assign"
	"skipper/controller/claim"
	"skipper/controller/pool"
	"skipper/controller/retire"
	skipperpb "skipper/proto"
)

// drainsFor is how long a pod drains, of which nobody says what is in progress.
const drainsFor = 20 * time.Second

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an Acquirer with the real Claimer and Retirer over a fake API
// server, and pods whose answers the test decides.
type world struct {
	*Acquirer
	t        *testing.T
	api      *fake.Clientset
	view     *pool.View
	claimer  *claim.Claimer
	retirer  *retire.Retirer
	stopping func()

	mu sync.Mutex
	// The fields below are guarded by mu.
	answer func(ctx context.Context, p pool.Pod) error // nil accepts
	posted []string
	made   int
}

func newWorld(t *testing.T, pods int) *world {
	t.Helper()
	w := &world{t: t, api: fake.NewClientset(), view: pool.NewView()}
	functions, stages := pool.NewParser(100), claim.NewMetrics(prometheus.NewRegistry())
	w.retirer = retire.New(retire.Config{
		Pods: w.api.CoreV1(), View: w.view, Functions: functions, Grace: time.Second,
		Limits: retire.Limits{Timeout: drainsFor}, Registerer: prometheus.NewRegistry(), Log: zap.NewNop(),
	})
	w.claimer = claim.New(claim.Config{Pods: w.api.CoreV1(), View: w.view, Functions: functions, Metrics: stages, Log: zap.NewNop()})
	w.Acquirer = New(Config{
		Claimer: w.claimer, Poster: w, Discarder: w.retirer, Refusals: assign.NewRefusals(100), View: w.view,
		Functions: functions, Pods: w.api.CoreV1(), Grace: time.Second, Stages: stages, Registerer: prometheus.NewRegistry(), Log: zap.NewNop(),
	})
	w.view.ApplyReplicaSet(pool.ReplicaSet{Namespace: "prod", Name: "echo-rs", Deployment: "echo", Replicas: 3})
	stopRetirer := w.run(w.retirer.Run)
	stopClaimer := w.run(w.claimer.Run)
	stopAcquirer := w.run(w.Run)
	w.stopping = sync.OnceFunc(func() {
		stopAcquirer()
		stopClaimer()
		stopRetirer()
	})
	t.Cleanup(w.stopping)
	w.addPods(pods)
	return w
}

// run starts a component and returns how to stop it and wait.
func (w *world) run(f func(context.Context) error) func() {
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f(ctx); err != nil {
			w.t.Error(err)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

func (w *world) addPods(n int) {
	for range n {
		w.mu.Lock()
		w.made++
		name := fmt.Sprintf("echo-%02d", w.made)
		w.mu.Unlock()
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "prod", Name: name, UID: types.UID("uid-" + name),
				Labels:          map[string]string{pool.LabelDeployment: "echo"},
				OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "echo-rs", UID: "rs", Controller: new(bool)}},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: "10.0.0.1",
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			},
		}
		*p.OwnerReferences[0].Controller = true
		if _, err := w.api.CoreV1().Pods("prod").Create(w.t.Context(), p, metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
		w.view.Apply(pool.FromPod(p, pool.NewParser(1)))
	}
}

// Assign is the pods' side.
func (w *world) Assign(ctx context.Context, p pool.Pod, _ *skipperpb.Function) error {
	w.mu.Lock()
	w.posted = append(w.posted, p.Name)
	answer := w.answer
	w.mu.Unlock()
	if answer == nil {
		return nil
	}
	return answer(ctx, p)
}

func (w *world) answers(f func(ctx context.Context, p pool.Pod) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = f
}

func (w *world) posts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.posted)
}

// settled waits for all background writes, those included that somebody is about
// to begin: callers go on as soon as the view shows what will be written. It is
// for tests in a bubble.
func (w *world) settled() {
	w.t.Helper()
	synctest.Wait()
	if err := errors.Join(w.Wait(w.t.Context()), w.retirer.Wait(w.t.Context())); err != nil {
		w.t.Fatal(err)
	}
}

// pods returns the API server's pods by what they are to Skipper.
func (w *world) pods() map[pool.State]int {
	w.t.Helper()
	list, err := w.api.CoreV1().Pods("prod").List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	states := map[pool.State]int{}
	for i := range list.Items {
		states[pool.FromPod(&list.Items[i], pool.NewParser(1)).State()]++
	}
	return states
}

// slow is an answer that takes d, or until the caller leaves.
func slow(d time.Duration) func(context.Context, pool.Pod) error {
	return func(ctx context.Context, _ pool.Pod) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
