package withdraw

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds/server"
)

// alone is a controller without subscribers and without other replicas.
type alone struct{}

func (alone) Unacknowledged(string, string, uint64) []string { return nil }
func (alone) Subscribers() []server.Subscriber               { return nil }
func (alone) Members() []string                              { return nil }
func (alone) Call(context.Context, string, func(context.Context, skipperpb.ReplicaServiceClient) error) error {
	return nil
}

// taken is a pod at a version that a function has, draining or not.
func taken(f *skipperpb.Function, version uint64, draining bool) pool.Pod {
	p := *fresh()
	p.Version, p.Marked, p.Function, p.Key, p.AssignedAt, p.ReadyAt = version, true, f, fn.KeyOf(f), noon, noon
	if draining {
		p.Draining, p.DrainingAt = true, noon
	}
	return p
}

// A list is as new as the watch. One that lacks a pod which was claimed and
// drained here, and is older than the claim, is no word of its end to whoever
// was answered with the pod.
func TestListThatIsOlderThanTheClaimIsNoWordOfItsEnd(t *testing.T) {
	f := &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "t", Scale: &skipperpb.Scale{MaxInstances: 1}}
	key, view, republished := fn.KeyOf(f), pool.NewView(), 0
	tracker := New(Config{
		Self: "10.1.0.1", Staleness: time.Minute, View: view, Subscribers: alone{}, Peers: alone{},
		Republish: func(fn.Key) { republished++ }, Freed: func([]string) {}, Registerer: prometheus.NewRegistry(), Log: zap.NewNop(),
	})
	publish := func() {
		mark := tracker.Mark()
		tracker.Published(mark, mark, map[fn.Key]struct{}{key: {}})
		tracker.step()
	}
	free := *fresh()
	free.Version = 100
	view.Apply(free)
	claimed, drains := taken(f, 105, false), taken(f, 105, true)
	view.ExpectWritten(claimed)
	tracker.Observe(pool.Event{Kind: pool.Changed, Old: &free, New: &claimed})
	view.ExpectDraining("p", noon)
	tracker.Observe(pool.Event{Kind: pool.Changed, Old: &claimed, New: &drains})
	publish()
	if _, ok := tracker.Acknowledged("p"); ok || republished > 0 {
		t.Errorf("acknowledged %v, %d lists published again before the watch has shown the claim", ok, republished)
	}
	view.Apply(taken(f, 105, false))
	tracker.step()
	publish()
	if _, ok := tracker.Acknowledged("p"); !ok || republished == 0 {
		t.Errorf("acknowledged %v, %d lists published again afterwards", ok, republished)
	}
}
