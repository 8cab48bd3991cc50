package lease

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"skipper/xds/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a Keeper over a fake API server.
type world struct {
	*Keeper
	api *fake.Clientset

	mu    sync.Mutex
	subs  []server.Subscriber
	fresh time.Time
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{api: fake.NewClientset()}
	w.Keeper = New(Config{
		Leases: w.api.CoordinationV1(), Namespace: "skipper-system", Staleness: 5 * time.Minute,
		Subscribers: func() []server.Subscriber {
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.Clone(w.subs)
		},
		GatewayOf: func(node string) (envoy, ip string) {
			return "envoy-of-" + strings.TrimPrefix(node, "extproc/"), "ip-of-" + strings.TrimPrefix(node, "extproc/")
		},
		FreshAt: func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.fresh
		},
		Registerer: prometheus.NewRegistry(), Log: zap.NewNop(),
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return w
}

func (w *world) set(fresh time.Time, subs ...server.Subscriber) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fresh, w.subs = fresh, subs
}

func subscriber(node string, quiet time.Time) server.Subscriber {
	return server.Subscriber{Node: node, Type: "instances", Names: 1, QuietAt: quiet}
}

func after(d time.Duration) {
	<-time.NewTimer(d).C
	synctest.Wait()
}

func (w *world) read(t *testing.T) []State {
	t.Helper()
	out, err := w.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestLeaseIsRenewedWhileConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		began := time.Now()
		fresh := began.Add(-time.Minute)
		w.set(fresh, subscriber("extproc/e1", began), subscriber("envoy", began),
			server.Subscriber{Node: "extproc/idle", Type: "instances", QuietAt: began})
		after(2 * time.Second)
		got := w.read(t)
		if len(got) != 1 || got[0].Node != "extproc/e1" || !got[0].InStep.Equal(fresh) {
			t.Fatalf("leases %+v: no later in step than the view was fresh", got)
		}
		for range 20 {
			after(10 * time.Second)
			w.set(time.Now(), subscriber("extproc/e1", began))
		}
		got = w.read(t)
		if !got[0].InStep.Equal(began) || time.Since(got[0].Connected) > 31*time.Second {
			t.Errorf("leases %+v after %v", got, time.Since(began))
		}
		if n := len(w.api.Actions()); n > 30 {
			t.Errorf("%d requests in 200 s", n)
		}
	})
}

func TestGoodbyeDeletesAndAbsenceKeepsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.set(time.Now(), subscriber("extproc/e1", time.Now()), subscriber("extproc/e2", time.Now()))
		after(2 * time.Second)
		w.set(time.Now())
		w.Goodbye("extproc/e1")
		w.Goodbye("extproc/unknown")
		after(time.Minute)
		got := w.read(t)
		if len(got) != 1 || got[0].Node != "extproc/e2" {
			t.Errorf("leases %+v, want that of e2", got)
		}
	})
}

// An extproc that has forgotten all its functions has nothing that could be stale.
func TestLeaseOfAnEmptyTableIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.set(time.Now(), subscriber("extproc/e1", time.Now()), subscriber("extproc/e2", time.Now()))
		after(2 * time.Second)
		empty := server.Subscriber{Node: "extproc/e1", Type: "instances", CaughtUp: true}
		w.set(time.Now(), empty, subscriber("extproc/e2", time.Now()), server.Subscriber{Node: "extproc/e2", Type: "instances"})
		after(2 * time.Second)
		if got := w.read(t); len(got) != 1 || got[0].Node != "extproc/e2" {
			t.Errorf("leases %+v, want that of e2, which has two streams", got)
		}
	})
}

// The stream of an extproc that has said goodbye may end a moment later.
func TestGoodbyeIsTheLastWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.set(time.Now(), subscriber("extproc/e1", time.Now()))
		after(1500 * time.Millisecond)
		w.Goodbye("extproc/e1")
		after(3 * time.Second)
		w.set(time.Now())
		after(time.Minute)
		if got := w.read(t); len(got) != 0 {
			t.Errorf("leases %+v after the goodbye", got)
		}
	})
}

func TestWhoStaysConnectedAfterAGoodbyeIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.set(time.Now(), subscriber("extproc/e1", time.Now()))
		after(1500 * time.Millisecond)
		w.Goodbye("extproc/e1")
		after(2 * time.Minute)
		if got := w.read(t); len(got) != 1 || time.Since(got[0].Connected) > 31*time.Second {
			t.Errorf("leases %+v", got)
		}
	})
}

func TestGoodbyeIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.set(time.Now(), subscriber("extproc/e1", time.Now()))
		after(1500 * time.Millisecond)
		w.set(time.Now())
		failures := 0
		w.api.PrependReactor("delete", "leases", func(k8stesting.Action) (bool, runtime.Object, error) {
			if failures++; failures <= 2 {
				return true, nil, apierrors.NewServiceUnavailable("down")
			}
			return false, nil, nil
		})
		w.Goodbye("extproc/e1")
		after(30 * time.Second)
		if got := w.read(t); len(got) != 0 {
			t.Errorf("leases %+v after the goodbye", got)
		}
	})
}

func TestExpiredLeasesAreCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.set(time.Now(), subscriber("extproc/e1", time.Now()))
		after(2 * time.Second)
		w.set(time.Now())
		after(11 * time.Minute)
		if got := w.read(t); len(got) != 0 {
			t.Errorf("expired leases are told: %+v", got)
		}
		after(15 * time.Minute)
		list, err := w.api.CoordinationV1().Leases("skipper-system").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 0 {
			t.Errorf("%d leases are left: %v", len(list.Items), err)
		}
	})
}

func TestLeaseNeverGoesBackAndMovesBetweenControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		now := time.Now()
		other := newLease("skipper-system", State{Node: "extproc/e1", InStep: now.Add(time.Hour), Connected: now.Add(time.Hour)}, time.Minute)
		if _, err := w.api.CoordinationV1().Leases("skipper-system").Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.set(now, subscriber("extproc/e1", now))
		after(2 * time.Second)
		want := []State{{Node: "extproc/e1", Envoy: "envoy-of-e1", IP: "ip-of-e1", InStep: now.Add(time.Hour), Connected: now.Add(time.Hour)}}
		if diff := cmp.Diff(want, w.read(t)); diff != "" {
			t.Errorf("leases (-want +got):\n%s", diff)
		}
	})
}

func TestNames(t *testing.T) {
	for node, want := range map[string]string{
		"extproc/6f9e0a5c-3a5e-4c1e-9f0e-2d5b1c7a8e90": "skipper-extproc-6f9e0a5c-3a5e-4c1e-9f0e-2d5b1c7a8e90",
		"extproc/UPPER": "skipper-extproc-hash-",
		"envoy/e1":      "skipper-extproc-hash-",
		"":              "skipper-extproc-hash-",
	} {
		if got := nameOf(node); !strings.HasPrefix(got, want) {
			t.Errorf("nameOf(%q) = %q, want %q", node, got, want)
		}
	}
	if nameOf("extproc/A") == nameOf("extproc/B") {
		t.Error("two nodes share a name")
	}
}
