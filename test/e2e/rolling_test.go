//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A rolling restart of every controller replica under 200 requests per second:
// none fails, the cold ones that fall into it included.
const (
	rollingTenants = 10
	rollingPause   = 50 * time.Millisecond  // per tenant: 200 requests/s in all
	coldPause      = 500 * time.Millisecond // between first requests of new tenants
	coldAfter      = 5                      // new tenants that must be served after the rollout
)

func TestRollingRestartUnderHeavyLoad(t *testing.T) {
	p := newWorld(t).newPool(t, 8)
	p.reconnectAfterwards(t)
	warm := p.warmUp(t, rollingTenants)
	l := startLoad(t, p, warm, rollingPause)
	c := startCold(t, p)
	stamp := map[string]string{"skipper-e2e/restarted-at": time.Now().Format(time.RFC3339Nano)}
	p.patchController(t, map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": stamp}}}})
	if err := p.waitRollout(t.Context(), p.system, controllerName); err != nil {
		t.Fatal(err)
	}
	seen, coldSeen := l.count(), c.count()
	eventually(t, "requests after the rollout", func() (bool, string) {
		n, k := l.count(), c.count()
		return n >= seen+10*afterRestart && k >= coldSeen+coldAfter, fmt.Sprint(n, " warm, ", k, " cold")
	})
	for _, problem := range append(l.stop(), c.stop()...) {
		t.Error(problem)
	}
	t.Logf("%d warm requests, %d cold ones", l.count(), c.count())
	p.wantClaims(t, "", len(warm)+c.count())
}

// cold sends the first request of a new tenant at a steady pace, until stop.
type cold struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	pods     map[types.UID]bool
	problems []string
}

func startCold(t *testing.T, p *pool) *cold {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &cold{cancel: cancel, pods: map[types.UID]bool{}}
	c.wg.Go(func() { c.run(ctx, p, coldPause) })
	t.Cleanup(func() { c.stop() })
	return c
}

func (c *cold) run(ctx context.Context, p *pool, pause time.Duration) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.record(i, p.get(context.WithoutCancel(ctx), p.function(fmt.Sprint("cold-", i)), "/"))
		}
	}
}

func (c *cold) record(i int, a answer) {
	e, err := echoOf(a)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.pods[e.PodUID] {
		err = fmt.Errorf("got pod %s, which another tenant has", e.PodUID)
	}
	c.pods[e.PodUID] = true
	if err != nil {
		c.problems = append(c.problems, fmt.Sprintf("%s cold request %d: %v", time.Now().Format(time.TimeOnly), i, err))
	}
}

func (c *cold) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pods)
}

func (c *cold) stop() []string {
	c.cancel()
	c.wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problems
}
