//go:build e2e

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// oneshotClients send at once; the pool has a pod for each.
const oneshotClients = 24

// Invariant 2: oneshot requests, until that many pods have served one, while
// extproc, controllers and Envoy are killed; no pod serves two, and none is left
// in the end.
func TestOneshots(t *testing.T) {
	o := usual(t, map[Image]int{Guarded: oneshotClients})
	o.addresses, o.order = 20_000, FreedFirst // reuse would wait for every extproc that was killed
	w := newWorld(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	var sending, storm sync.WaitGroup
	transport := &http.Transport{MaxIdleConnsPerHost: oneshotClients}
	defer transport.CloseIdleConnections()
	for i := range oneshotClients {
		c := w.oneshotClient(i, transport)
		sending.Go(func() {
			for w.ledger.Oneshots() < *oneshots && ctx.Err() == nil {
				c.step(ctx)
			}
		})
	}
	storm.Go(func() {
		w.storm(ctx, Storm{
			Seed: *seed, Total: time.Hour, PartEvery: 3 * time.Second, Restart: 2 * time.Second, Controllers: 3, Gateways: 2,
			Kinds: []Kind{KillController, KillExtproc, KillEnvoy},
		}.Plan())
	})
	storm.Go(func() { w.watchProgress(ctx) })
	sending.Wait()
	cancel()
	storm.Wait()
	w.report()
	t.Logf("%d pods served a oneshot request", w.ledger.Oneshots())
	w.noneLeft()
}

func (w *world) oneshotClient(i int, transport *http.Transport) *Client {
	f := &skipperpb.Function{
		Namespace: w.field, Deployment: string(Guarded), Tenant: fmt.Sprintf("once-%03d", i), Oneshot: true,
		Scale: &skipperpb.Scale{MaxInstances: 1},
	}
	c := &Client{
		Tenant: f.GetTenant(), Function: string(fn.Marshal(f)), HTTP: &http.Client{Transport: transport}, Ledger: w.ledger,
		Rand: rand.New(rand.NewPCG(*seed, uint64(100+i))), Think: 200 * time.Millisecond, Idle: 4 * time.Second,
	}
	for _, g := range w.gateways {
		c.Gateways = append(c.Gateways, g.url)
	}
	return c
}

// noneLeft waits until no pod has a tenant. The world is whole again; the
// heartbeat timeout is short, but drains wait for the table of an extproc that was
// killed to expire.
func (w *world) noneLeft() {
	w.t.Helper()
	w.within(*staleness+start, "no oneshot pod is left", func() (bool, string) {
		pods, err := w.kube.CoreV1().Pods(w.field).List(w.t.Context(), metav1.ListOptions{LabelSelector: "skipper/tenant"})
		if err != nil {
			return false, err.Error()
		}
		last := ""
		for _, p := range pods.Items {
			last += fmt.Sprintf("%s of %s since %s; ", p.Name, p.Labels["skipper/tenant"], p.Annotations["skipper/assigned-at"])
		}
		return len(pods.Items) == 0, last
	})
}
