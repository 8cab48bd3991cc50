package inflight

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"skipper/controller/heartbeat"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
	"skipper/xds/loads"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	shards  = 4
	expiry  = 5 * time.Minute
	timeout = 90 * time.Second
)

var function = &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "t", Scale: &skipperpb.Scale{MaxInstances: 3}}

// world is a store over a pool view.
type world struct {
	t         *testing.T
	view      *pool.View
	beats     *heartbeat.Store
	addresses *Addresses
	store     *Store
	registry  *prometheus.Registry
	protected bool
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, view: pool.NewView(), beats: heartbeat.NewStore(timeout, heartbeat.Limits{}),
		addresses: NewAddresses(shards), registry: prometheus.NewRegistry(),
	}
	w.store = New(Config{
		Pods: w.view, Addresses: w.addresses, Heartbeats: w.beats, Expiry: expiry,
		Protected: func(time.Time) bool { return w.protected }, Registerer: w.registry, Log: zap.NewNop(),
	})
	return w
}

// instance is a ready pod of the function.
func instance(uid, addr string) pool.Pod {
	p := pool.Pod{
		Namespace: "prod", Name: uid, UID: uid, Deployment: "echo", Tenant: "t", IP: addr, Port: 8080, Protocol: xds.HTTP1,
		Phase: corev1.PodRunning, Ready: true, Marked: true, Function: function, Key: fn.KeyOf(function), AssignedAt: start, ReadyAt: start,
	}
	return p
}

// add shows a pod to the view and the addresses, one after the other.
func (w *world) add(pods ...pool.Pod) {
	for _, p := range pods {
		w.view.Apply(p)
		w.addresses.Observe(pool.Event{Kind: pool.Added, New: &p})
	}
}

func busy(p pool.Pod, n uint32) loads.Busy {
	return loads.Busy{Cluster: xds.ShardClusterOf(p.Protocol, p.UID, shards), Addr: p.Addr(), InProgress: n}
}

func stream(node string, id uint64) loads.Stream { return loads.Stream{Node: node, ID: id} }

// beat records a heartbeat of the function by the extproc beside an Envoy.
func (w *world) beat(router, node string, now time.Time, counts on) {
	var total uint32
	for _, n := range counts {
		total += n
	}
	w.beats.Record(&skipperpb.HeartbeatRequest{
		RouterId: router, RouterIp: "10.9.0.1", EnvoyNodeId: node,
		Heartbeats: []*skipperpb.Heartbeat{{Function: function, InFlightRequests: total, InFlightByInstance: counts}},
	}, now)
}

func (w *world) want(what, uid string, since, now time.Time, n int, known bool) {
	w.t.Helper()
	if got, k, asOf := w.store.since(uid, since, now); got != n || k != known {
		w.t.Errorf("%s: %d, known %v as of %v; want %d, %v", what, got, k, asOf, n, known)
	}
}

// apart are two instances at one address in different clusters.
func apart(addr string) (was, is pool.Pod) {
	was = instance("pod-0", addr)
	for i := 1; ; i++ {
		is = instance(fmt.Sprint("pod-", i), addr)
		if busy(is, 0) != busy(was, 0) {
			return was, is
		}
	}
}
