package main

import (
	"context"
	"net/netip"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"skipper/controller/config"
	skipperpb "skipper/proto"
	"skipper/xds"
)

// reporter is an Envoy's load reporting stream, which says one thing again and
// again.
type reporter struct {
	stream grpc.BidiStreamingClient[loadstatsv3.LoadStatsRequest, loadstatsv3.LoadStatsResponse]
	stop   func()
}

// report has an Envoy connect to the controller and report n requests in
// progress on the instance until the test ends.
func (w *world) report(node string, i *skipperpb.Instance, n uint64) *reporter {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	stream, err := loadstatsv3.NewLoadReportingServiceClient(w.conn).StreamLoadStats(ctx, grpc.WaitForReady(true))
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	r := &reporter{stream, func() { cancel(); <-done }}
	w.t.Cleanup(r.stop)
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			if stream.Send(loadOf(w.t, node, i, n)) != nil {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return r
}

func loadOf(t *testing.T, node string, i *skipperpb.Instance, n uint64) *loadstatsv3.LoadStatsRequest {
	addr, err := netip.ParseAddrPort(i.GetAddr())
	if err != nil {
		t.Error(err)
	}
	socket := &corev3.SocketAddress{Address: addr.Addr().String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(addr.Port())}}
	return &loadstatsv3.LoadStatsRequest{
		Node: &corev3.Node{Id: node},
		ClusterStats: []*endpointv3.ClusterStats{{
			ClusterName: xds.ShardClusterOf(xds.HTTP1, i.GetUid(), xds.DefaultShards),
			UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{UpstreamEndpointStats: []*endpointv3.UpstreamEndpointStats{{
				TotalRequestsInProgress: n, Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: socket}},
			}}}},
		}},
	}
}

// No heartbeat tells of the requests; the Envoy is connected to a replica that
// does not scale the function.
func TestFunctionIsScaledByLoadReportsOfAnotherReplica(t *testing.T) {
	c := startCrowd(t, 2, 4, func(cfg *config.Config) { cfg.ScaleInterval = 100 * time.Millisecond })
	f := c.ownedBy(1)
	f.Scale.TargetInFlightRequests = 1
	i, err := c.replicas[0].get(f)
	if err != nil {
		t.Fatal(err)
	}
	c.replicas[0].report("envoy-1", i, 2)
	c.until("two instances", func(pods []corev1.Pod) bool { return len(tenantPods(pods, f.GetTenant())) == 2 })
}

func TestStoppingControllerSendsEnvoysToAnother(t *testing.T) {
	w := startWorld(t, 1, nil)
	i, err := w.get(function("t"))
	if err != nil {
		t.Fatal(err)
	}
	r := w.report("envoy-1", i, 1)
	if _, err := r.stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	if _, err := r.stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestBadShareIsRefused(t *testing.T) {
	w := startWorld(t, 0, nil)
	_, err := skipperpb.NewReplicaServiceClient(w.conn).ShareLoad(t.Context(), &skipperpb.ShareLoadRequest{}, grpc.WaitForReady(true))
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("ShareLoad = %v", err)
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (replicaService{}).ShareLoad(late, nil); status.Code(err) != codes.Canceled {
		t.Errorf("late ShareLoad = %v", err)
	}
}
