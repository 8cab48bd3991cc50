//go:build e2e

package e2e_test

import (
	"testing"

	"skipper/proto/reason"
)

// refusalsInARow is how many pods one function may lose before it has to wait (contract).
const refusalsInARow = 3

// badTenant is refused by the image of the pool in TestRefusedAssignment.
const badTenant = "e2e-refused"

// An image that refuses one tenant costs the pool three pods, not all, and the other tenants do not notice.
func TestRefusedAssignment(t *testing.T) {
	t.Parallel()
	const replicas = 4
	p := newWorld(t).newPool(t, replicas, withArgs("--refuse-tenant="+badTenant))
	good := mustEcho(t, p.get(t.Context(), p.function("good"), "/"))
	refused := p.function("")
	refused.Tenant = badTenant
	for _, a := range atOnce(10, func(int) answer { return p.get(t.Context(), refused, "/") }) {
		wantUnavailable(t, a, reason.AssignRejected)
	}
	other := mustEcho(t, p.get(t.Context(), p.function("other"), "/"))
	if other.PodUID == good.PodUID {
		t.Errorf("two tenants share pod %s", other.PodUID)
	}
	if again := mustEcho(t, p.get(t.Context(), p.function("good"), "/")); again.PodUID != good.PodUID {
		t.Errorf("tenant %s moved from pod %s to %s", good.Tenant, good.PodUID, again.PodUID)
	}
	p.waitFull(t)
	p.settle(t)
	lost := p.pods.claimed(badTenant)
	if n := len(lost); n < refusalsInARow || n > 2*refusalsInARow {
		t.Errorf("%d pods were spent on refusals, want %d, or a few more where a back-off ended meanwhile:%s", n, refusalsInARow, p.pods)
	}
	for _, e := range lost {
		p.waitGone(t, e.pod.UID)
	}
}

// An image that refuses everybody does not lose the whole pool to one tenant who keeps asking.
func TestPoolOutlivesATenantWhoKeepsAsking(t *testing.T) {
	t.Parallel()
	const replicas, requests = 3, 40
	p := newWorld(t).newPool(t, replicas, withArgs("--refuse-assignment"))
	for range requests {
		wantUnavailable(t, p.get(t.Context(), p.function("a"), "/"), reason.AssignRejected)
	}
	p.waitFull(t)
	p.settle(t)
	if n := len(p.pods.claimed("")); n >= requests {
		t.Errorf("%d requests cost %d pods: the function is not held back", requests, n)
	}
}
