package envoy_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"skipper/envoy"
	"skipper/envoy/envoytest"
)

// loads takes load reports, as a controller does.
type loads struct {
	loadv3.UnimplementedLoadReportingServiceServer
	mu   sync.Mutex
	last map[string]uint64 // in progress, by "cluster address" of the last report
}

func (l *loads) StreamLoadStats(s loadv3.LoadReportingService_StreamLoadStatsServer) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	if err := s.Send(&loadv3.LoadStatsResponse{
		SendAllClusters: true, ReportEndpointGranularity: true, LoadReportingInterval: durationpb.New(50 * time.Millisecond),
	}); err != nil {
		return err
	}
	for {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		l.take(r)
	}
}

func (l *loads) take(r *loadv3.LoadStatsRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = map[string]uint64{}
	for _, c := range r.GetClusterStats() {
		for _, locality := range c.GetUpstreamLocalityStats() {
			for _, e := range locality.GetUpstreamEndpointStats() {
				a := e.GetAddress().GetSocketAddress()
				if n := e.GetTotalRequestsInProgress(); n > 0 && c.GetClusterName() != envoy.ControllerCluster {
					l.last[fmt.Sprintf("%s %s:%d", c.GetClusterName(), a.GetAddress(), a.GetPortValue())] = n
				}
			}
		}
	}
}

// are whether the last report has the pod's requests at its shard, and what
// else it has.
func (l *loads) are(pod string, n uint64) (bool, map[string]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last != nil && l.last[pod] == n, l.last
}

// A request counts at the endpoint that it is at, under the name of the shard,
// in whatever pass it came there.
func TestLoadIsReportedAtTheShard(t *testing.T) {
	t.Parallel()
	l := &loads{}
	g := startGateway(t, func(c *envoy.Config) { c.LoadReports = true }, func(s *grpc.Server) {
		loadv3.RegisterLoadReportingServiceServer(s, l)
	})
	leave := make(chan struct{})
	pod := startPod(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }))
	wrong := misdirectingHost(t)
	g.pods(t, http1Cluster, pod.addr, wrong)
	g.processor.route("direct", http1Cluster, pod.addr)
	g.processor.route("fn", http1Cluster, unknownHost(t), wrong, pod.addr)
	var all sync.WaitGroup
	defer all.Wait()
	defer close(leave)
	for i, function := range []string{"direct", "fn", "fn"} {
		req := g.request(t, http.MethodGet, function, nil)
		all.Go(func() { g.do(t, req) })
		var rest map[string]uint64
		envoytest.Eventually(t, fmt.Sprintf("the report has %d requests", i+1), func() bool {
			var ok bool
			ok, rest = l.are(http1Cluster+" "+pod.addr, uint64(i+1))
			return ok
		})
		t.Logf("%s: %v", function, rest)
		for name := range rest {
			if name != http1Cluster+" "+pod.addr && name != envoy.ExtprocCluster+" :0" && name != envoy.SecondPassCluster+" :0" {
				t.Errorf("%s: report has %s too", function, name)
			}
		}
	}
}
