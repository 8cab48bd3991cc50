//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	skipperpb "skipper/proto"
)

// crowd sends the same request from a number of clients, each at once after its last was answered. Every answer must be
// the function's own 200.
type crowd struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	http   *http.Client

	mu       sync.Mutex
	answered int
	problems []string
}

// breath is the least time between two requests of a client, so that quick answers make no flood.
const breath = 50 * time.Millisecond

// startCrowd begins; stop it before the test looks at it.
func startCrowd(t *testing.T, p *pool, f *skipperpb.Function, clients int, path string) *crowd {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	transport := &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true}
	c := &crowd{cancel: cancel, http: &http.Client{Transport: transport}}
	for range clients {
		c.wg.Go(func() { c.run(ctx, p, f, path) })
	}
	t.Cleanup(func() {
		c.stop(t)
		transport.CloseIdleConnections()
	})
	return c
}

func (c *crowd) run(ctx context.Context, p *pool, f *skipperpb.Function, path string) {
	ticker := time.NewTicker(breath)
	defer ticker.Stop()
	for ctx.Err() == nil {
		c.record(sendWith(c.http, p.request(context.WithoutCancel(ctx), http.MethodGet, f, path, nil)), f)
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

func (c *crowd) record(a answer, f *skipperpb.Function) {
	of := a.header.Get("X-Echo-Tenant")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered++
	if a.err != nil || a.status != http.StatusOK || of != f.GetTenant() {
		c.problems = append(c.problems, fmt.Sprintf("%s request of tenant %s, answered for %q: %s", time.Now().Format(time.TimeOnly), f.GetTenant(), of, a))
	}
}

// stop sends nothing new, waits for what is under way, and fails the test for each request that was not served. It may
// be called again.
func (c *crowd) stop(t *testing.T) (answered int) {
	t.Helper()
	c.cancel()
	c.wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, problem := range c.problems {
		if i == shownLosses {
			t.Errorf("and %d more", len(c.problems)-i)
			break
		}
		t.Error(problem)
	}
	c.problems = nil
	return c.answered
}

// during looks again and again for as long as something lasts.
func during(t *testing.T, d time.Duration, look func()) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < d; pauseABeat(t) {
		look()
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
	}
}

// waitServed asks until the function answers; a refusal meanwhile has a reason.
func (p *pool) waitServed(t *testing.T, f *skipperpb.Function) {
	t.Helper()
	eventually(t, "an answer for "+f.GetTenant(), func() (bool, string) {
		a := p.get(t.Context(), f, "/")
		if a.status != http.StatusOK && a.reason() == "" {
			t.Errorf("neither an answer nor a reason: %s", a)
		}
		return a.status == http.StatusOK, a.String()
	})
}

// kept are warm functions of tenants "0", "1", ... each under light load from its first answer on, so that none falls
// silent while a slow node starts pods for the others.
type kept struct {
	pods  map[string]types.UID
	loads map[string]*load
}

func (p *pool) keepWarm(t *testing.T, tenants int) kept {
	t.Helper()
	k := kept{map[string]types.UID{}, map[string]*load{}}
	for i := range tenants {
		name := fmt.Sprint(i)
		p.waitServed(t, p.function(name))
		k.pods[name] = mustEcho(t, p.get(t.Context(), p.function(name), "/")).PodUID
		k.loads[name] = startLoad(t, p, map[string]types.UID{name: k.pods[name]}, loadPause)
	}
	p.waitFull(t)
	return k
}

// stop ends the load of a tenant, and fails the test for each request that its pod did not serve.
func (k kept) stop(t *testing.T, tenant string) {
	t.Helper()
	for _, problem := range k.loads[tenant].stop() {
		t.Error(problem)
	}
}

// stopAll ends all loads; it tells how many requests there were.
func (k kept) stopAll(t *testing.T) (requests int) {
	t.Helper()
	for tenant, l := range k.loads {
		k.stop(t, tenant)
		requests += l.count()
	}
	return requests
}
