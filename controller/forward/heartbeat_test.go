package forward

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	skipperpb "skipper/proto"
)

func counted(t *testing.T, c prometheus.Collector) float64 {
	t.Helper()
	return testutil.ToFloat64(c)
}

func batch(router string, at int64, tenants ...string) *skipperpb.HeartbeatRequest {
	r := &skipperpb.HeartbeatRequest{RouterId: router}
	for _, tenant := range tenants {
		r.Heartbeats = append(r.Heartbeats, &skipperpb.Heartbeat{
			Function:  &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: tenant},
			Timestamp: &timestamppb.Timestamp{Seconds: at},
		})
	}
	return r
}

// Every replica gets every batch, once, whoever received it, and says so.
func TestEachReplicaGetsEachBatchOnce(t *testing.T) {
	for _, n := range []int{2, 5, 10} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w := newPatientWorld(t, n)
			const batches = 20
			for i, ip := range w.ips {
				c := w.client(ip)
				for b := range batches {
					// A router of its own for each, so that none may be joined.
					if _, err := c.Heartbeat(t.Context(), batch(fmt.Sprint(i, "/", b), 1, "t")); err != nil {
						t.Fatal(err)
					}
				}
			}
			want := map[string]int{}
			for i := range w.ips {
				for b := range batches {
					want[fmt.Sprint(i, "/", b)] = 1
				}
			}
			for _, r := range w.replicas {
				got := map[string]int{}
				for range n * batches {
					got[(<-r.beats).GetRouterId()]++
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("%s (-want +got):\n%s", r.ip, d)
				}
			}
			if got, want := w.forwarded(), n*(n-1)*batches; got != want {
				t.Errorf("%d messages between replicas, want %d: one per pair and batch", got, want)
			}
		})
	}
}

// forwarded ends all sending, and counts all messages that replicas have sent
// or were about to send each other.
func (w *world) forwarded() int {
	w.t.Helper()
	n := 0
	for _, r := range w.replicas {
		var peers []*peer
		for _, ip := range w.ips {
			if p := r.peers.of(ip); p != nil {
				peers = append(peers, p)
			}
		}
		r.peers.Close()
		for _, p := range peers {
			n += len(p.outbox.order)
		}
		for _, outcome := range []string{sent, merged, dropped, failed} {
			n += int(counted(w.t, r.forward.cfg.Metrics.heartbeats.WithLabelValues(outcome)))
		}
	}
	return n
}

// A replica that answers slowly holds nobody up and is sent less.
func TestSlowReplicaGetsTheNewestOnly(t *testing.T) {
	w := newWorld(t, 3)
	slow, hold := w.replicas[w.ips[2]], make(chan struct{})
	slow.set(func() { slow.hold = hold })
	c := w.client(w.ips[0])
	const batches = 200
	for b := range batches {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if _, err := c.Heartbeat(ctx, batch("router", int64(b+1), "t", fmt.Sprint("t", b%3))); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	out := w.replicas[w.ips[0]].peers.of(slow.ip).outbox
	out.mu.Lock()
	waiting := len(out.order)
	out.mu.Unlock()
	if waiting > 1 {
		t.Errorf("%d messages wait for the slow replica, want one of the one router", waiting)
	}
	close(hold)
	newest := map[string]int64{}
	for newest["t"] < batches {
		for _, h := range (<-slow.beats).GetHeartbeats() {
			newest[h.GetFunction().GetTenant()] = h.GetTimestamp().GetSeconds()
		}
	}
	if d := cmp.Diff(map[string]int64{"t": 200, "t0": 199, "t1": 200, "t2": 198}, newest); d != "" {
		t.Errorf("newest heartbeats (-want +got):\n%s", d)
	}
}

func TestOutboxDropsWhatHasWaitedLongest(t *testing.T) {
	o := newOutbox()
	for i := range maxRouters + 3 {
		_, dropped := o.put(batch(fmt.Sprint(i), 1, "t"))
		if want := max(0, min(1, i-maxRouters+1)); dropped != want {
			t.Fatalf("message %d: %d dropped, want %d", i, dropped, want)
		}
	}
	if r := o.take(); r.GetRouterId() != "3" {
		t.Errorf("the longest waiting is of router %s, want 3", r.GetRouterId())
	}
	big := batch("big", 1)
	big.Heartbeats = make([]*skipperpb.Heartbeat, maxHeartbeats+1)
	if _, dropped := o.put(big); dropped != maxRouters-1 {
		t.Errorf("%d dropped for a message as large as all, want the other %d", dropped, maxRouters-1)
	}
	if r := o.take(); r.GetRouterId() != "big" || o.take() != nil || o.size != 0 {
		t.Errorf("took %s, %d left, want the large one and nothing else", r.GetRouterId(), o.size)
	}
}

func TestMergeOfGoodbyes(t *testing.T) {
	bye := &skipperpb.HeartbeatRequest{RouterId: "r", Goodbye: true}
	news := batch("r", 2, "a")
	if got := Merge(news, bye); got != bye {
		t.Errorf("goodbye after news = %v, want the goodbye alone", got)
	}
	if got := Merge(bye, news); got != bye {
		t.Errorf("what was under way beside a goodbye = %v, want the goodbye alone", got)
	}
	nameless, again := &skipperpb.HeartbeatRequest{RouterIp: "10.9.0.1", Goodbye: true}, &skipperpb.HeartbeatRequest{RouterIp: "10.9.0.1"}
	if got := Merge(nameless, again); got != again {
		t.Errorf("news of the next router at an address = %v, want the news alone", got)
	}
}

// said is what a receiver knows of a function.
type said struct {
	At       int64
	InFlight uint32
	Failures map[string]uint32
}

// saidBy is what a receiver knows that got all messages: the newest heartbeat of
// each function, and all failures.
func saidBy(all []*skipperpb.HeartbeatRequest) map[string]said {
	out := map[string]said{}
	for _, r := range all {
		for _, h := range r.GetHeartbeats() {
			tenant := h.GetFunction().GetTenant()
			now, known := out[tenant]
			if at := h.GetTimestamp().GetSeconds(); !known || at >= now.At {
				now.At, now.InFlight = at, h.GetInFlightRequests()
			}
			for uid, n := range h.GetFailuresByInstance() {
				if now.Failures == nil {
					now.Failures = map[string]uint32{}
				}
				now.Failures[uid] += n
			}
			out[tenant] = now
		}
	}
	return out
}

// someMessages of one router, each of which names a function once.
func someMessages(rnd *rand.Rand) []*skipperpb.HeartbeatRequest {
	all := make([]*skipperpb.HeartbeatRequest, 1+rnd.IntN(5))
	for n := range all {
		all[n] = batch("r", 0)
		all[n].ForwardedFor = []string{fmt.Sprint(n)}
		all[n].RunningFor = durationpb.New(time.Duration(n) * time.Second)
		for i := range 4 {
			if rnd.IntN(2) == 0 {
				continue
			}
			h := batch("r", int64(rnd.IntN(20)), fmt.Sprint("t", i)).GetHeartbeats()[0]
			h.InFlightRequests = rnd.Uint32N(100)
			for range rnd.IntN(3) {
				if h.FailuresByInstance == nil {
					h.FailuresByInstance = map[string]uint32{}
				}
				h.FailuresByInstance[fmt.Sprint("u", rnd.IntN(3))] = 1 + rnd.Uint32N(5)
			}
			all[n].Heartbeats = append(all[n].Heartbeats, h)
		}
	}
	return all
}

// Merging says what a receiver would know that had got all messages.
func TestMergeSaysWhatAllMessagesSaid(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		all := someMessages(rnd)
		before := make([]*skipperpb.HeartbeatRequest, len(all))
		for i, r := range all {
			before[i] = proto.CloneOf(r)
		}
		merged := all[0]
		for _, r := range all[1:] {
			merged = Merge(merged, r)
		}
		if d := cmp.Diff(saidBy(all), saidBy([]*skipperpb.HeartbeatRequest{merged})); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
		if last := all[len(all)-1]; merged.GetForwardedFor()[0] != last.GetForwardedFor()[0] || merged.GetRunningFor().AsDuration() != last.GetRunningFor().AsDuration() {
			t.Fatalf("merged is %v, want the rest to be that of the last", merged)
		}
		if d := cmp.Diff(before, all, protocmp.Transform()); d != "" {
			t.Fatalf("Merge changed its arguments:\n%s", d)
		}
	}
}

func TestMergedFailuresAreBounded(t *testing.T) {
	of := func(from, to int, n uint32) *skipperpb.HeartbeatRequest {
		r := batch("r", 1, "t")
		r.Heartbeats[0].FailuresByInstance = map[string]uint32{}
		for i := range to - from {
			r.Heartbeats[0].FailuresByInstance[fmt.Sprint("u", from+i)] = n
		}
		return r
	}
	got := Merge(of(0, maxFailing-1, math.MaxUint32), of(maxFailing-10, 2*maxFailing, 2)).GetHeartbeats()[0].GetFailuresByInstance()
	if len(got) > 2*maxFailing || got[fmt.Sprint("u", maxFailing-5)] != math.MaxUint32 {
		t.Errorf("%d pods, %d failures of one; want at most %d and the largest number", len(got), got[fmt.Sprint("u", maxFailing-5)], 2*maxFailing)
	}
	if got = Merge(of(maxFailing, 3*maxFailing, 1), of(0, maxFailing, 1)).GetHeartbeats()[0].GetFailuresByInstance(); len(got) != maxFailing {
		t.Errorf("%d pods are remembered, want %d", len(got), maxFailing)
	}
}

// A goodbye that was said just before the end still reaches the others.
func TestFlushSendsWhatWaits(t *testing.T) {
	w := newPatientWorld(t, 3)
	hold := make(chan struct{})
	from, slow := w.replicas[w.ips[0]], w.replicas[w.ips[2]]
	slow.set(func() { slow.hold = hold })
	for _, r := range []*skipperpb.HeartbeatRequest{batch("a", 1, "t"), batch("b", 1, "t"), {RouterId: "a", Goodbye: true}} {
		from.forward.Heartbeat(r)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	from.peers.Flush(ended) // returns although somebody is slow
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		from.peers.Flush(t.Context())
	}()
	close(hold)
	<-flushed
	from.peers.Close()
	for _, ip := range w.ips[1:] {
		for r := range w.replicas[ip].beats {
			if r.GetGoodbye() {
				break
			}
		}
	}
}
