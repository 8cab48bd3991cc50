package claim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skipper/controller/pool"
)

func unprocessableObject() error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", field.ErrorList{field.Invalid(field.NewPath("x"), 1, "bad")})
}

// source is a rand.Rand for several goroutines.
type source struct {
	mu sync.Mutex
	r  *rand.Rand // guarded by mu
}

func (s *source) upTo(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.r.Int64N(int64(d) + 1))
}

func (s *source) oneIn(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.r.IntN(n) == 0
}

// TestNoPodIsClaimedTwice lets three replicas with lagging informers claim at
// once, with pods that appear late, callers that leave, and an API server that
// fails now and then. Every pod has one owner, every caller that stays gets a
// pod while there are enough, and no reservation is left.
func TestNoPodIsClaimedTwice(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { raceClaimers(t, &source{r: rand.New(rand.NewPCG(seed, 2))}) })
		})
	}
}

func raceClaimers(t *testing.T, s *source) {
	const replicas, callers, leaving = 3, 30, 10
	views := []*pool.View{pool.NewView(), pool.NewView(), pool.NewView()}
	api := newAPI(views...)
	api.lag = func(int) time.Duration { return s.upTo(2 * time.Second) }
	api.delay = func() time.Duration { return s.upTo(20 * time.Millisecond) }
	api.letGo = true
	api.fail = func(string) error {
		if s.oneIn(15) {
			return apierrors.NewServiceUnavailable("try again")
		}
		return nil
	}
	names := []string{"a", "b", "c"}
	var claimers []*Claimer
	for i, v := range views {
		known(v)
		claimers = append(claimers, start(t, api, v, Spread{Self: names[i], Replicas: names}))
	}
	owners := claimConcurrently(t, s, claimers, callers, leaving, func() {
		for i := range callers + leaving {
			api.put(readyPod(i))
			<-time.NewTimer(s.upTo(50 * time.Millisecond)).C
		}
	})
	api.timers.Wait()
	drain()
	for pod, tenants := range api.claims {
		if len(tenants) != 1 {
			t.Errorf("pod %s was claimed for %v", pod, tenants)
		}
	}
	for tenant, pod := range owners {
		if got := api.claims[pod]; len(got) != 1 || got[0] != tenant {
			t.Errorf("%s was told that it has %s, which belongs to %v", tenant, pod, got)
		}
	}
	for i := range callers {
		if tenant := fmt.Sprint("stays", i); owners[tenant] == "" {
			t.Errorf("%s got no pod", tenant)
		}
	}
}

// claimConcurrently starts callers at random times and returns the pods by tenant.
func claimConcurrently(t *testing.T, s *source, claimers []*Claimer, staying, leaving int, meanwhile func()) map[string]string {
	owners := map[string]string{}
	var mu sync.Mutex
	var running sync.WaitGroup
	claim := func(ctx context.Context, tenant string, c *Claimer) {
		<-time.NewTimer(s.upTo(time.Second)).C
		p, err := c.Claim(ctx, testFunction(tenant))
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		owners[tenant] = p.Name
	}
	for i := range staying {
		running.Go(func() { claim(t.Context(), fmt.Sprint("stays", i), claimers[i%len(claimers)]) })
	}
	for i := range leaving {
		running.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), s.upTo(2*time.Second))
			defer cancel()
			claim(ctx, fmt.Sprint("leaves", i), claimers[i%len(claimers)])
		})
	}
	meanwhile()
	running.Wait()
	return owners
}
