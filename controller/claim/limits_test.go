package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"skipper/controller/limit"
	"skipper/controller/pool"
)

// limited runs a Claimer with limits until the test ends.
func limited(t *testing.T, api *fakeAPI, v *pool.View, perMinute uint32, reserve float64) *Claimer {
	t.Helper()
	c := New(Config{
		Pods: api, View: v, Functions: pool.NewParser(100), Log: zap.NewNop(), Metrics: NewMetrics(prometheus.NewRegistry()),
		Tenants: limit.NewTenants(perMinute, 0), Reserve: reserve,
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return c
}

// claims tries n claims for the tenant, one after the other, with a second for
// each, and counts those that won. The last error is returned.
func claims(t *testing.T, c *Claimer, tenant string, n int) (won int, last error) {
	t.Helper()
	for range n {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, err := c.Claim(ctx, testFunction(tenant)); err != nil {
			last = err
		} else {
			won++
		}
		cancel()
	}
	return won, last
}

func reached(err error) limit.Name {
	var e *limit.Error
	if errors.As(err, &e) {
		return e.Limit
	}
	return ""
}

func TestTenantIsRefusedBeyondItsMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := pool.NewView()
		api := newAPI(v)
		c := limited(t, api, v, 3, 0)
		for i := range 10 {
			api.put(readyPod(i))
		}
		if won, err := claims(t, c, "greedy", 5); won != 3 || reached(err) != limit.TenantClaimsPerMinute {
			t.Errorf("greedy won %d, %v, want 3 and the limit", won, err)
		}
		if won, err := claims(t, c, "other", 2); won != 2 {
			t.Errorf("other won %d, %v, want 2", won, err)
		}
		<-time.NewTimer(20 * time.Second).C
		if won, _ := claims(t, c, "greedy", 2); won != 1 {
			t.Errorf("20 s later greedy won %d, want 1", won)
		}
	})
}

// Callers that wait already when the allowance is used up are told, and those
// of other tenants behind them are served.
func TestWaitingCallersBeyondTheMinuteAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := pool.NewView()
		api := newAPI(v)
		c := limited(t, api, v, 1, 0)
		known(v)
		errs := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := c.Claim(t.Context(), testFunction("greedy"))
				errs <- err
			}()
		}
		synctest.Wait()
		other := make(chan error, 1)
		go func() {
			_, err := c.Claim(t.Context(), testFunction("other"))
			other <- err
		}()
		synctest.Wait()
		for i := range 4 {
			api.put(readyPod(i))
		}
		refused := 0
		for range 3 {
			if reached(<-errs) == limit.TenantClaimsPerMinute {
				refused++
			}
		}
		if err := <-other; err != nil || refused != 2 {
			t.Errorf("%d of greedy's callers refused, other %v, want 2 and none", refused, err)
		}
		drain()
		if len(c.queues) != 0 {
			t.Errorf("queues are left: %v", c.queues)
		}
	})
}

// A claim that another replica has made counts, once, and our own is not
// counted again when the informer shows it.
func TestClaimsOfOtherReplicasCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := pool.NewView(), pool.NewView()
		api := newAPI(one, two)
		a, b := limited(t, api, one, 4, 0), limited(t, api, two, 4, 0)
		for i := range 20 {
			api.put(readyPod(i))
		}
		won := 0
		for range 4 {
			for _, c := range []*Claimer{a, b} {
				n, _ := claims(t, c, "t1", 1)
				won += n
				synctest.Wait() // the events are through
			}
		}
		if won != 4 {
			t.Errorf("two replicas let the tenant have %d pods, want 4 in all", won)
		}
		for _, p := range one.All() {
			one.Remove(p.Namespace, p.UID, p.Version)
			two.Remove(p.Namespace, p.UID, p.Version)
		}
		synctest.Wait()
		if len(a.counted)+len(b.counted) != 0 {
			t.Errorf("pods are remembered as counted: %v, %v", a.counted, b.counted)
		}
	})
}

func TestReserveIsKeptForTenantsWithoutAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := pool.NewView()
		v.ApplyReplicaSet(pool.ReplicaSet{Namespace: "prod", Name: "echo-rs", Deployment: "echo", Replicas: 10})
		api := newAPI(v)
		c := limited(t, api, v, 0, 0.3)
		for i := range 10 {
			api.put(readyPod(i))
		}
		if won, err := claims(t, c, "greedy", 10); won != 7 || reached(err) != limit.PoolReserve {
			t.Errorf("greedy won %d, %v, want 7 and the reserve", won, err)
		}
		for i := range 3 {
			if won, err := claims(t, c, fmt.Sprint("other", i), 1); won != 1 {
				t.Errorf("other %d: %v", i, err)
			}
		}
	})
}

// Whoever the reserve keeps waiting is served when the pool has filled up, and
// keeps nobody else waiting.
func TestReserveIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := pool.NewView()
		v.ApplyReplicaSet(pool.ReplicaSet{Namespace: "prod", Name: "echo-rs", Deployment: "echo", Replicas: 4})
		api := newAPI(v)
		c := limited(t, api, v, 0, 0.5)
		for i := range 4 {
			api.put(readyPod(i))
		}
		claims(t, c, "greedy", 2)
		patient := make(chan error, 1)
		go func() {
			_, err := c.Claim(t.Context(), testFunction("greedy"))
			patient <- err
		}()
		synctest.Wait()
		if won, err := claims(t, c, "other", 1); won != 1 {
			t.Errorf("other behind one that waits for the reserve: %v", err)
		}
		for i := range 3 {
			api.put(readyPod(10 + i))
		}
		if err := <-patient; err != nil {
			t.Errorf("greedy, with the pool full again: %v", err)
		}
	})
}
