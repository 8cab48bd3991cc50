package loads

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"skipper/xds"
)

var (
	shard7 = xds.ClusterName(xds.HTTP1, 7)
	shard9 = xds.ClusterName(xds.H2C, 9)
)

func TestEnvoyIsAskedForEverythingAndItsReportsReachTheSink(t *testing.T) {
	w := newWorld(t, Options{})
	w.server.Open()
	e := w.open()
	e.send(message("envoy-1"))
	got, err := e.Recv()
	if err != nil {
		t.Fatal(err)
	}
	want := &loadstatsv3.LoadStatsResponse{
		SendAllClusters: true, ReportEndpointGranularity: true, LoadReportingInterval: durationpb.New(time.Second),
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	before := time.Now()
	e.send(message("", cluster("skipper_controllers", at("10.0.0.1", 50051, 1)), cluster(shard7, at("10.0.0.2", 8080, 3))))
	e.send(message("envoy-1", cluster("skipper_controllers")))
	if err := e.CloseSend(); err != nil {
		t.Fatal(err)
	}
	s := Stream{"envoy-1", 1}
	for _, want := range []said{{Stream: s, busy: []Busy{{shard7, "10.0.0.2:8080", 3}}}, {Stream: s}, {Stream: s, ended: true}} {
		if diff := cmp.Diff(want, w.next(), cmp.AllowUnexported(said{})); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := e.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
	for _, at := range w.times {
		if at.Before(before) || at.After(time.Now()) {
			t.Errorf("received at %v, want after %v", at, before)
		}
	}
}

// On a stream that is not its first, Envoy reports at once.
func TestHelloCanBeAReport(t *testing.T) {
	w := newWorld(t, Options{})
	w.server.Open()
	w.open().send(message("envoy-1", cluster(shard7, at("10.0.0.2", 8080, 3))))
	if got := w.next(); len(got.busy) != 1 {
		t.Errorf("heard %v", got)
	}
}

func TestOnlyWhatCanBeAPodIsRead(t *testing.T) {
	r := message("e",
		cluster("skipper-http1-1000", at("10.0.0.1", 1, 1)), cluster(shard7+"-routed", at("10.0.0.1", 1, 1)),
		cluster(shard9, at("fd00::1", 80, 1), at("::ffff:10.0.0.3", 80, 2), at("10.0.0.4", 80, 0),
			at("fe80::1%eth0", 80, 1), at("name", 80, 1), at("10.0.0.5", 0, 1), at("10.0.0.6", 70_000, 1),
			&endpointv3.UpstreamEndpointStats{TotalRequestsInProgress: 1},
			&endpointv3.UpstreamEndpointStats{TotalRequestsInProgress: 1, Address: &corev3.Address{
				Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/run/a.sock"}},
			}},
			at("10.0.0.7", 80, 1<<63)),
	)
	got, err := clusterNames(xds.DefaultShards).busy(r)
	if err != nil {
		t.Fatal(err)
	}
	want := []Busy{{shard9, "[fd00::1]:80", 1}, {shard9, "10.0.0.3:80", 2}, {shard9, "10.0.0.7:80", maxInProgress}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestMessagesThatCannotBeTakenEndTheStream(t *testing.T) {
	manyClusters := message("e")
	for range maxClusters + 1 {
		manyClusters.ClusterStats = append(manyClusters.ClusterStats, &endpointv3.ClusterStats{})
	}
	crowd := cluster("any")
	crowd.UpstreamLocalityStats = []*endpointv3.UpstreamLocalityStats{{UpstreamEndpointStats: make([]*endpointv3.UpstreamEndpointStats, maxEndpoints+1)}}
	for i := range crowd.UpstreamLocalityStats[0].UpstreamEndpointStats {
		crowd.UpstreamLocalityStats[0].UpstreamEndpointStats[i] = &endpointv3.UpstreamEndpointStats{}
	}
	for _, row := range []struct {
		name, says string
		messages   []*loadstatsv3.LoadStatsRequest
	}{
		{"no node", "names no node", []*loadstatsv3.LoadStatsRequest{message("")}},
		{"long node", "254 bytes", []*loadstatsv3.LoadStatsRequest{message(strings.Repeat("n", 254))}},
		{"changed node", `from "a" to "b"`, []*loadstatsv3.LoadStatsRequest{message("a"), message("b")}},
		{"clusters", "4097 clusters", []*loadstatsv3.LoadStatsRequest{manyClusters}},
		{"endpoints", "100000 endpoints", []*loadstatsv3.LoadStatsRequest{message("e", crowd)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, Options{})
			w.server.Open()
			e := w.open()
			for _, m := range row.messages {
				e.send(m)
			}
			err := e.ended()
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), row.says) {
				t.Errorf("ended with %v", err)
			}
			if n := testutil.ToFloat64(w.server.metrics.refused.WithLabelValues(refusedInvalid)); n != 1 {
				t.Errorf("%v counted", n)
			}
			if len(w.heard) > 0 {
				t.Errorf("the sink heard %v", <-w.heard)
			}
		})
	}
}

// ended reads until the end of the stream.
func (e *envoy) ended() error {
	for {
		if _, err := e.Recv(); err != nil {
			return err
		}
	}
}

func TestStreamsWaitUntilOpenAndEndWithHold(t *testing.T) {
	w := newWorld(t, Options{})
	early := w.open()
	early.send(message("envoy-1", cluster(shard7)))
	if len(w.heard) > 0 {
		t.Error("a stream was served before Open")
	}
	w.server.Open()
	w.next()
	w.server.Hold("its watch is frozen")
	if err := early.ended(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "its watch is frozen") {
		t.Errorf("ended with %v", err)
	}
	if got := w.next(); !got.ended {
		t.Errorf("heard %v, want the end", got)
	}
	if err := w.open().ended(); status.Code(err) != codes.Unavailable {
		t.Errorf("a new stream ended with %v", err)
	}
	w.server.Open()
	w.hello("envoy-1")
}

func TestCloseHasToldTheSinkOfEveryEnd(t *testing.T) {
	w := newWorld(t, Options{})
	w.server.Open()
	for range 10 {
		w.hello("envoy").send(message("", cluster(shard7)))
		w.next()
	}
	w.server.Close()
	if n := len(w.heard); n != 10 {
		t.Errorf("%d of 10 ends heard", n)
	}
	if n := testutil.ToFloat64(w.server.metrics.envoys); n != 0 {
		t.Errorf("%v Envoys are left", n)
	}
	w.server.Open()
	if err := w.open().ended(); status.Code(err) != codes.Unavailable {
		t.Errorf("opened after Close: %v", err)
	}
}

func TestTooManyStreamsAreRefused(t *testing.T) {
	w := newWorld(t, Options{MaxStreams: 1})
	w.server.Open()
	first := w.hello("a")
	if err := w.open().ended(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("ended with %v", err)
	}
	first.send(message("", cluster(shard7)))
	w.next()
	first.leave()
	w.next()
	w.server.running.Wait()
	w.hello("b")
}

func TestSilentStreamIsEnded(t *testing.T) {
	w := newWorld(t, Options{SilentAfter: time.Millisecond})
	w.server.Open()
	if err := w.open().ended(); status.Code(err) != codes.Aborted {
		t.Errorf("ended with %v", err)
	}
}

func FuzzTake(f *testing.F) {
	for _, m := range []*loadstatsv3.LoadStatsRequest{
		message(""), message("e"), message("e", cluster("x")), message("e", cluster(shard7, at("10.0.0.1", 80, 1), at("::1", 80, 1<<40))),
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r loadstatsv3.LoadStatsRequest
		if proto.Unmarshal(b, &r) == nil {
			checkTake(t, &r)
		}
	})
}

// checkTake has a message taken as the first of its stream.
func checkTake(t *testing.T, r *loadstatsv3.LoadStatsRequest) {
	t.Helper()
	w := &world{t: t, heard: make(chan said, 1)}
	s, st := New(Options{Sink: w}), &stream{}
	err := s.take(st, r, time.Now())
	if (err != nil || len(r.GetClusterStats()) == 0) != (len(w.heard) == 0) || err == nil && st.Node == "" {
		t.Fatalf("node %q, %d heard after %v", st.Node, len(w.heard), err)
	}
	if len(w.heard) == 0 {
		return
	}
	for _, b := range (<-w.heard).busy {
		if s.names[b.Cluster] == "" || b.Addr == "" || b.InProgress == 0 || b.InProgress > maxInProgress {
			t.Fatalf("busy %+v", b)
		}
	}
}
