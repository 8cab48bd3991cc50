//go:build e2e

package multi_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	skipperpb "skipper/proto"
	"skipper/proto/identity"
	"skipper/proto/identity/issue"
)

// TestAuthorityIsReplacedUnderLoad replaces the authority and all certificates
// in the order of docs/trust.md, under cold and warm requests. After each step
// all connections are made anew: those of Envoy and extproc are cut, and one
// controller is restarted. No request fails.
func TestAuthorityIsReplacedUnderLoad(t *testing.T) {
	old, fresh := newAuthority(t), newAuthority(t)
	tr := newTrust(t, old)
	w := newWorld(t, options{pool: 40, controllers: 3, trust: tr})
	w.pods.Serve = http.HandlerFunc(answerAddress)
	relay := w.startRelay(w.addrs()...)
	g := w.startGateway(tr, relay.addr)
	stop := g.load()

	steps := []struct {
		name    string
		by      *issue.Authority
		trusted []*issue.Authority
	}{
		{"both authorities are trusted", old, []*issue.Authority{old, fresh}},
		{"certificates of the new one", fresh, []*issue.Authority{old, fresh}},
		{"the new one alone is trusted", fresh, []*issue.Authority{fresh}},
	}
	for i, s := range steps {
		before := g.reloads()
		tr.put(t, s.by, s.trusted...)
		w.eventually(s.name+": everywhere", func() (bool, string) { return increased(before, g.reloads()) })
		g.reconnect(relay)
		w.creds = tr.operator(t)
		w.restart(i)
		if failed := g.failures(); failed != "" {
			t.Fatalf("%s: %s", s.name, failed)
		}
	}
	warm, cold := stop()
	t.Logf("%d warm and %d cold requests, 0 failed", warm, cold)
	w.refuses(old)
}

// requests go on until they are told to stop.
type requests struct {
	warm, cold atomic.Int64

	mu     sync.Mutex
	failed []string // guarded by mu
}

// load sends warm requests all the time, and a cold one each 250 ms; stop ends
// them, and tells how many there were.
func (g *gateway) load() (stop func() (warm, cold int64)) {
	var running sync.WaitGroup
	end := make(chan struct{})
	every := func(pause time.Duration, n *atomic.Int64, f func(int64) *skipperpb.Function) {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			if failure := g.get(f(n.Add(1))); failure != "" {
				g.mu.Lock()
				g.failed = append(g.failed, failure)
				g.mu.Unlock()
			}
			select {
			case <-tick.C:
			case <-end:
				return
			}
		}
	}
	running.Go(func() {
		every(20*time.Millisecond, &g.warm, func(int64) *skipperpb.Function { return g.w.function("warm") })
	})
	for part := range 2 {
		running.Go(func() {
			every(500*time.Millisecond, &g.cold, func(n int64) *skipperpb.Function { return g.w.function(fmt.Sprintf("cold-%d-%d", part, n)) })
		})
	}
	once := sync.OnceFunc(func() {
		close(end)
		running.Wait()
	})
	g.w.t.Cleanup(once)
	return func() (int64, int64) {
		once()
		if failed := g.failures(); failed != "" {
			g.w.t.Error(failed)
		}
		return g.warm.Load(), g.cold.Load()
	}
}

// failures are those until now; empty: none.
func (g *gateway) failures() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.failed) == 0 {
		return ""
	}
	return fmt.Sprintf("%d requests failed, the first: %s", len(g.failed), g.failed[0])
}

// reloads counts how often each part has taken new files, by part.
func (g *gateway) reloads() map[string]float64 {
	const metric = "skipper_tls_reloads_total"
	out := map[string]float64{"extproc": gauge(g.w.t, g.web, metric)}
	for _, c := range g.w.controllers {
		out[c.Addr()] = gauge(g.w.t, c.Web(), metric)
	}
	const stat = "cluster.skipper-controllers.client_ssl_socket_factory.ssl_context_update_by_sds"
	_, text, err := g.envoy.Admin(g.w.t.Context(), http.MethodGet, "/stats?filter="+stat)
	if err != nil {
		g.w.t.Fatal(err)
	}
	var n float64
	if _, err := fmt.Sscanf(strings.TrimSpace(text), stat+": %g", &n); err != nil {
		g.w.t.Fatalf("stats of Envoy: %q: %v", text, err)
	}
	out["envoy"] = n
	return out
}

func increased(before, now map[string]float64) (bool, string) {
	for part, n := range before {
		if now[part] <= n {
			return false, part + " has not taken the new files"
		}
	}
	return true, ""
}

// reconnect cuts the connections of Envoy and extproc, and waits for new ones.
func (g *gateway) reconnect(r *relay) {
	g.w.t.Helper()
	had := r.cut()
	g.w.eventually("Envoy and extproc are connected again", func() (bool, string) {
		_, state, err := g.envoy.Admin(g.w.t.Context(), http.MethodGet, "/stats?filter=control_plane.connected_state")
		n := r.count()
		return err == nil && n >= had+2 && strings.Contains(state, "connected_state: 1"), fmt.Sprint(n, " connections; ", state, err)
	})
}

// restart ends a controller in order and starts it again.
func (w *world) restart(i int) {
	w.t.Helper()
	if err := w.controllers[i].Stop(); err != nil {
		w.t.Fatal(err)
	}
	w.controllers[i] = w.start[i]()
	client := w.client(w.controllers[i].Addr())
	w.eventually("the controller is back", func() (bool, string) {
		if ok, why := httpOK(w.controllers[i].Web() + "/readyz"); !ok {
			return false, why
		}
		s, err := client.GetClusterState(w.t.Context(), &skipperpb.GetClusterStateRequest{})
		return err == nil && len(s.GetClusterState().GetControllerIps()) == len(w.ips), fmt.Sprint(s.GetClusterState().GetControllerIps(), err)
	})
}

// refuses makes sure that certificates of that authority are worth nothing.
func (w *world) refuses(a *issue.Authority) {
	w.t.Helper()
	stale := newTrust(w.t, a)
	w.creds = stale.open(w.t, identity.Operator).Client(identity.Controller)
	for _, addr := range w.addrs() {
		if _, err := w.client(addr).GetClusterState(w.t.Context(), &skipperpb.GetClusterStateRequest{}); err == nil {
			w.t.Errorf("%s takes a certificate of the old authority", addr)
		}
	}
}
