//go:build e2e

package soak

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

var (
	length   = flag.Duration("soak.time", time.Minute, "how long tenants send requests")
	images   = flag.String("soak.images", "guarded,plain", "images of pods, separated by commas")
	least    = flag.Int("soak.least", 0, "fail where fewer requests were sent")
	seed     = flag.Uint64("soak.seed", 1, "seed of clients and chaos")
	oneshots = flag.Int("soak.oneshots", 300, "how many pods serve a oneshot request")
	logs     = flag.String("soak.logs", "", "folder that keeps the logs of all programs")
	// In a quiet namespace a controller hears only once a minute or so how far
	// its watch is, and takes half of this, or two minutes, for too long; less
	// than four minutes has healthy controllers send everybody away.
	staleness = flag.Duration("soak.staleness", 5*time.Minute, "--table-staleness of controllers and extprocs")
	race      = flag.Bool("soak.race", false, "build controller and extproc with the race detector")
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

const tenants = 200

// Invariant 1: two hundred tenants on sixty-four addresses, while all that can
// break breaks; none is answered by a pod of another.
func TestIsolation(t *testing.T) {
	pools := map[Image]int{}
	var names []Image
	for name := range strings.SplitSeq(*images, ",") {
		pools[Image(name)] = 8 / (1 + strings.Count(*images, ","))
		names = append(names, Image(name))
	}
	w := newWorld(t, usual(t, pools))
	before := w.holdings(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), *length)
	defer cancel()
	var running sync.WaitGroup
	transport := &http.Transport{MaxIdleConnsPerHost: tenants, IdleConnTimeout: 10 * time.Second}
	defer transport.CloseIdleConnections()
	for i := range tenants {
		c := w.client(i, names[i%len(names)], transport)
		running.Go(func() { c.Run(ctx) })
	}
	running.Go(func() { w.watchProgress(ctx) })
	running.Go(func() { w.watchParts(ctx) })
	w.storm(ctx, weather().Plan())
	running.Wait()
	w.wantHoldings(before)
	w.report()
	if all, _ := w.ledger.Requests(); all < *least {
		t.Errorf("%d requests are too few, want %d", all, *least)
	}
	if r := w.addresses.Reuse(); r.Tenants == 0 {
		t.Errorf("no address changed its tenant, so the run shows nothing: %+v", r)
	}
}

// weather is what happens in a run of that length. Addresses are blocked while a
// part is away that may not know of their end: until it is back, or, if it was
// killed, until its table has expired. Between such times there must be room for
// claims, so what takes long happens in long runs only.
func weather() Storm {
	s := Storm{
		Seed: *seed, Total: *length, PodEvery: 700 * time.Millisecond, PartEvery: 10 * time.Second,
		Restart: 2 * time.Second, Freeze: 12 * time.Second, Controllers: 3, Gateways: 2,
		Kinds: []Kind{
			RestartController, KillController, StopController, FreezeWatch, FreezeWatch, RestartExtproc,
			PartitionExtproc, PartitionEnvoy, PartitionBoth, PartitionBoth,
		},
	}
	if *length >= 4**staleness {
		s.PodEvery, s.PartEvery, s.Freeze = 1500*time.Millisecond, 20*time.Second, *staleness*5/4
		s.Kinds = append(s.Kinds, KillExtproc)
	}
	return s
}

// client of a tenant.
func (w *world) client(i int, image Image, transport *http.Transport) *Client {
	f := &skipperpb.Function{
		Namespace: w.field, Deployment: string(image), Tenant: fmt.Sprintf("t-%03d", i),
		Scale: &skipperpb.Scale{MaxInstances: 1},
	}
	if i%10 == 0 {
		f.Scale = &skipperpb.Scale{MaxInstances: 2, TargetInFlightRequests: 1}
	}
	c := &Client{
		Tenant: f.GetTenant(), Function: string(fn.Marshal(f)), HTTP: &http.Client{Transport: transport}, Ledger: w.ledger,
		Rand: rand.New(rand.NewPCG(*seed, uint64(100+i))), Think: 40 * time.Millisecond, Busy: 30 * time.Second, Idle: 6 * time.Second,
	}
	for _, g := range w.gateways {
		c.Gateways = append(c.Gateways, g.url)
	}
	return c
}

// progressEvery is how often a long run says how it is.
const progressEvery = 10 * time.Second

func (w *world) watchProgress(ctx context.Context) {
	last := 0
	for pause(ctx, progressEvery) {
		all, ok := w.ledger.Requests()
		pods, assigned := w.kubelet.Residents()
		w.t.Logf("%s %d requests, %d ok, %d/s; %d pods, %d assigned; %d violations", time.Now().Format("15:04:05"), all, ok,
			(all-last)/int(progressEvery.Seconds()), pods, assigned, len(w.ledger.Violations()))
		last = all
	}
}

// report prints the run, and fails the test if it shows nothing.
func (w *world) report() {
	w.t.Helper()
	w.t.Log("\n" + w.ledger.Report(w.addresses.Reuse()))
	if _, ok := w.ledger.Requests(); ok == 0 {
		w.t.Error("no request went well, so the run shows nothing")
	}
}
