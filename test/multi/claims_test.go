//go:build e2e

package multi_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	skipperpb "skipper/proto"
	"skipper/test/hollow"
)

// Three controllers, a pool of 300, 300 claims from three clients at once: each
// tenant has a pod of its own, and no pod was assigned twice.
func TestThreeHundredClaimsAtOnce(t *testing.T) {
	for name, lag := range map[string]time.Duration{"watches at once": 0, "watches up to 2 s late": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			claimAll(t, newWorld(t, options{pool: 300, controllers: 3, lag: lag}), 300)
		})
	}
}

func claimAll(t *testing.T, w *world, n int) {
	owners := make([]*skipperpb.Instance, n)
	var clients []skipperpb.ControllerServiceClient
	for _, addr := range w.addrs() {
		clients = append(clients, w.client(addr))
	}
	begin := time.Now()
	var running sync.WaitGroup
	for i := range owners {
		running.Go(func() {
			var err error
			if owners[i], err = w.get(clients[i%len(clients)], w.function(fmt.Sprint("t", i))); err != nil {
				t.Errorf("tenant %d: %v", i, err)
			}
		})
	}
	running.Wait()
	took := time.Since(begin)
	names := map[string]int{}
	for i, o := range owners {
		if other, twice := names[o.GetName()]; twice && o != nil {
			t.Errorf("tenants %d and %d were both given pod %s", other, i, o.GetName())
		}
		names[o.GetName()] = i
	}
	w.checkOwners(owners)
	counts := map[string]float64{}
	for _, c := range w.controllers {
		one, err := hollow.Metric(t.Context(), c.Web(), "skipper_controller_claims_total", "outcome")
		if err != nil {
			t.Fatal(err)
		}
		for outcome, n := range one {
			counts[outcome] += n
		}
	}
	t.Logf("%d claims in %s (%.0f/s), patches by outcome: %v", n, took.Round(time.Millisecond), float64(n)/took.Seconds(), counts)
	if counts["won"] != float64(n) {
		t.Errorf("%v claims won, want %d: %v", counts["won"], n, counts)
	}
}

// checkOwners compares what callers were told with the API server and with what
// the pods were told.
func (w *world) checkOwners(owners []*skipperpb.Instance) {
	w.t.Helper()
	tenants := map[string]string{} // by pod
	for _, p := range w.list("skipper/tenant", "") {
		tenants[p.Name] = p.Labels["skipper/tenant"]
	}
	if len(tenants) != len(owners) {
		w.t.Errorf("%d pods are claimed, want %d", len(tenants), len(owners))
	}
	for i, o := range owners {
		if want := fmt.Sprint("t", i); tenants[o.GetName()] != want {
			w.t.Errorf("pod %s was given to %s and belongs to %q", o.GetName(), want, tenants[o.GetName()])
		}
	}
	seen := map[string]string{}
	for _, a := range w.pods.Accepted() {
		if other, twice := seen[a.IP]; twice && other != a.Function {
			w.t.Errorf("pod at %s was assigned %s and %s", a.IP, other, a.Function)
		}
		seen[a.IP] = a.Function
	}
}

// gauge reads a metric without labels.
func gauge(t *testing.T, web, name string) float64 {
	t.Helper()
	values, err := hollow.Metric(t.Context(), web, name, "")
	if err != nil {
		t.Fatal(err)
	}
	return values[""]
}
