package claim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skipper/controller/pool"
	"skipper/proto/fn"
)

// start runs a Claimer over the API with the view until the test ends.
func start(t *testing.T, api *fakeAPI, v *pool.View, spread Spread) *Claimer {
	t.Helper()
	c := New(Config{
		Pods: api, View: v, Functions: pool.NewParser(100), Log: zap.NewNop(),
		Spread: func() Spread { return spread }, Metrics: NewMetrics(prometheus.NewRegistry()),
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if len(c.queues) != 0 {
			t.Errorf("queues are left: %v", c.queues)
		}
	})
	return c
}

// known makes the pool known without a pod.
func known(v *pool.View) {
	v.ApplyReplicaSet(pool.ReplicaSet{Namespace: "prod", Name: "echo-rs", Deployment: "echo", Replicas: 3})
}

// drain lets avoidances expire, so that a cleanup can look for what is left.
func drain() { <-time.NewTimer(2 * avoidFor).C }

func TestClaimTakesAReadyPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := pool.NewView()
		api := newAPI(v)
		c := start(t, api, v, Spread{})
		api.put(readyPod(1))
		p, err := c.Claim(t.Context(), testFunction("t1"))
		if err != nil {
			t.Fatal(err)
		}
		if p.State() != pool.Assigned || p.Key != fn.KeyOf(testFunction("t1")) || p.ReplicaSet != "echo-rs" {
			t.Errorf("claimed pod is %+v", p)
		}
		if shown, _ := v.Pod(p.UID); shown.State() != pool.Assigned {
			t.Errorf("view shows the pod as %s", shown.State())
		}
	})
}

func TestClaimKnowsItsInTheViewBeforeTheInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := pool.NewView()
		api := newAPI(v)
		c := start(t, api, v, Spread{})
		api.put(readyPod(1))
		api.lag = func(int) time.Duration { return time.Minute }
		if _, err := c.Claim(t.Context(), testFunction("t1")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if p, err := c.Claim(ctx, testFunction("t2")); err == nil {
			t.Errorf("pod %s was claimed twice", p.Name)
		}
		api.timers.Wait()
	})
}

func TestClaimWaitsFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := pool.NewView()
		api := newAPI(v)
		c := start(t, api, v, Spread{})
		known(v)
		var order []string
		var mu sync.Mutex
		var callers sync.WaitGroup
		for i := range 5 {
			tenant := fmt.Sprint("t", i)
			callers.Go(func() {
				if _, err := c.Claim(t.Context(), testFunction(tenant)); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, tenant)
			})
			synctest.Wait()
		}
		begin := time.Now()
		for i := range 5 {
			api.put(readyPod(i))
			synctest.Wait()
		}
		callers.Wait()
		if got := strings.Join(order, " "); got != "t0 t1 t2 t3 t4" {
			t.Errorf("served in order %s", got)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("callers were woken after %s, not by the event", took)
		}
	})
}

func TestCallerThatLeavesFreesItsPlaceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := pool.NewView()
		api := newAPI(v)
		c := start(t, api, v, Spread{})
		known(v)
		impatient, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		callers.Go(func() {
			_, err := c.Claim(impatient, testFunction("t1"))
			var wait *WaitError
			if !errors.As(err, &wait) || !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want a WaitError for context.Canceled", err)
			}
		})
		synctest.Wait()
		callers.Go(func() {
			if _, err := c.Claim(t.Context(), testFunction("t2")); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		api.put(readyPod(1))
		callers.Wait()
		if got := api.claims["echo-01"]; len(got) != 1 || got[0] != "t2" {
			t.Errorf("pod was claimed for %v, want t2", got)
		}
	})
}

func TestClaimGoesOnToAnotherPod(t *testing.T) {
	tests := map[string]func(api *fakeAPI){
		"lost race": func(api *fakeAPI) {
			p := readyPod(1)
			p.ResourceVersion, p.Labels[pool.LabelTenant] = "9", "other"
			api.pods[p.Name] = p // behind the informer's back
		},
		"gone":     func(api *fakeAPI) { delete(api.pods, "echo-01") },
		"deleting": func(api *fakeAPI) { api.pods["echo-01"].DeletionTimestamp = ptr(metav1.NewTime(noon)) },
		"unclear": func(api *fakeAPI) {
			api.fail = func(name string) error {
				if name == "echo-01" {
					return errors.New("connection reset")
				}
				return nil
			}
		},
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := pool.NewView()
				api := newAPI(v)
				c := start(t, api, v, Spread{})
				api.put(readyPod(1))
				happens(api)
				var callers sync.WaitGroup
				callers.Go(func() {
					p, err := c.Claim(t.Context(), testFunction("t1"))
					if err != nil || p.Name != "echo-02" {
						t.Errorf("claimed %q: %v", p.Name, err)
					}
				})
				synctest.Wait()
				api.put(readyPod(2))
				callers.Wait()
				drain()
			})
		})
	}
}

// However many answers are lost, and however long nothing can be read, a call
// takes one pod.
func TestLostAnswersCostNoPods(t *testing.T) {
	for name, outage := range map[string]time.Duration{"reads at once": 0, "reads late": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := pool.NewView()
				api := newAPI(v)
				api.lag = func(int) time.Duration { return time.Minute } // of the informer
				began := time.Now()
				api.loses = func(string) bool { return true }
				api.unread = func() error {
					if time.Since(began) < outage {
						return errors.New("connection refused")
					}
					return nil
				}
				c := start(t, api, v, Spread{})
				for i := range 5 {
					v.Apply(pool.FromPod(readyPod(i), pool.NewParser(1)))
					api.put(readyPod(i))
				}
				p, err := c.Claim(t.Context(), testFunction("t1"))
				if err != nil || p.Tenant != "t1" || len(api.claims) != 1 || len(api.claims[p.Name]) != 1 {
					t.Errorf("claimed %q: %v; the API server wrote %v", p.Name, err, api.claims)
				}
				api.timers.Wait()
				drain()
			})
		})
	}
}

func TestClaimErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := pool.NewView()
		api := newAPI(v)
		c := start(t, api, v, Spread{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Claim(ctx, testFunction("t1")); !errors.Is(err, ErrDeploymentNotFound) {
			t.Errorf("unknown pool: %v", err)
		}
		unready := readyPod(1)
		unready.Status.Conditions = nil
		api.put(unready)
		_, err := c.Claim(ctx, testFunction("t1"))
		const want = "0 of 1 pods in pool prod/echo ready (pod echo-01: it is not ready yet): scale the Deployment up or wait until its pods are ready"
		if err == nil || err.Error() != want || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("empty pool: %v, want %s", err, want)
		}
		large := testFunction("t1")
		large.Metadata = strings.Repeat("\u2028", fn.MaxJSONBytes/4) // three bytes, written as six
		if _, err := c.Claim(t.Context(), large); !errors.Is(err, ErrFunctionTooLarge) {
			t.Errorf("function that cannot be read back: %v", err)
		}
	})
}

func TestClaimIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := pool.NewView()
		api := newAPI(v)
		api.fail = func(string) error { return unprocessableObject() }
		c := start(t, api, v, Spread{})
		api.put(readyPod(1))
		if _, err := c.Claim(t.Context(), testFunction("t1")); !errors.Is(err, ErrRefused) {
			t.Errorf("error %v, want ErrRefused", err)
		}
		drain()
	})
}
