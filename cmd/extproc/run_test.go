package main

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"

	skipperpb "skipper/proto"

	"skipper/envoy/envoytest"
)

// ask opens a stream as Envoy does for a request to f.
func ask(t testing.TB, c extprocv3.ExternalProcessorClient, f *skipperpb.Function) extprocv3.ExternalProcessor_ProcessClient {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	s, err := c.Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(requestFor(f)); err != nil {
		t.Fatal(err)
	}
	return s
}

func requestFor(f *skipperpb.Function) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{
		Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
			{Key: ":path", RawValue: []byte("/some/path")},
			{Key: ":method", RawValue: []byte("GET")},
			{Key: "x-skipper-function", RawValue: []byte(text(f))},
		}},
	}}}
}

// answered is the address that a stream was sent to.
func answered(t testing.TB, s extprocv3.ExternalProcessor_ProcessClient) string {
	t.Helper()
	for {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.GetOverrideMessageTimeout() == nil {
			return m.GetDynamicMetadata().GetFields()["envoy.lb"].GetStructValue().GetFields()["x-skipper-instance"].GetStringValue()
		}
	}
}

// checkWord looks at a heartbeat: it says who speaks, and of how many functions.
func checkWord(t *testing.T, b *skipperpb.HeartbeatRequest, functions int) {
	t.Helper()
	type word struct {
		ip, node       string
		named, running bool
		functions      int
	}
	want := word{"10.9.9.9", "envoy-1", true, true, functions}
	if got := (word{b.GetRouterIp(), b.GetEnvoyNodeId(), b.GetRouterId() != "", b.GetRunningFor() != nil, len(b.GetHeartbeats())}); got != want {
		t.Errorf("heartbeat is %+v, want %+v: %v", got, want, b)
	}
}

func TestSidecarTellsTheControllerWhatItDoes(t *testing.T) {
	p := newPlane(t, "10.0.0.1:80", "10.0.0.2:80")
	s := startSidecar(t, p, nil)
	envoytest.Eventually(t, "an idle router says that it is there", func() bool { return p.inFlight() == 0 })
	checkWord(t, see(p, func() *skipperpb.HeartbeatRequest { return p.beats[0] }), 0)
	c := s.dial(t)
	shared, alone := ask(t, c, function("t")), ask(t, c, oneshot())
	if got := answered(t, shared) + " " + answered(t, alone); got != "10.0.0.1:80 10.0.0.2:80" && got != "10.0.0.2:80 10.0.0.1:80" {
		t.Fatalf("requests went to %s", got)
	}
	envoytest.Eventually(t, "both are reported", func() bool { return p.inFlight() == 2 })
	checkWord(t, see(p, func() *skipperpb.HeartbeatRequest { return p.beats[len(p.beats)-1] }), 2)
	for _, stream := range []extprocv3.ExternalProcessor_ProcessClient{shared, alone} {
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
	}
	envoytest.Eventually(t, "nothing is in progress", func() bool { return p.inFlight() == 0 })
	envoytest.Eventually(t, "the oneshot is released", func() bool { return see(p, func() int { return len(p.released) }) == 1 })
	s.end(t)
	if !p.saidGoodbye() {
		t.Error("no goodbye")
	}
}

func TestSidecarServesMetricsAndProbes(t *testing.T) {
	s := startSidecar(t, newPlane(t), nil)
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200, "/other": 404} {
		if got := s.get(t, path); got != want {
			t.Errorf("%s is %d, want %d", path, got, want)
		}
	}
}

func TestReadiness(t *testing.T) {
	r := &readiness{}
	steps := []struct {
		do   func()
		want string
	}{
		{func() {}, "503 no controller reached yet"},
		{func() { r.set(false) }, "503 no controller reached yet"},
		{func() { r.set(true) }, "200 ok"},
		{func() { r.set(false) }, "200 ok"},
		{r.stop, "503 stopping"},
	}
	for _, s := range steps {
		s.do()
		w := &recorder{status: http.StatusOK}
		r.ServeHTTP(w, nil)
		if diff := cmp.Diff(s.want, w.String()); diff != "" {
			t.Errorf("readiness (-want +got):\n%s", diff)
		}
	}
}

type recorder struct {
	strings.Builder
	status int
}

func (r *recorder) Header() http.Header { return http.Header{} }
func (r *recorder) WriteHeader(s int)   { r.status = s }
func (r *recorder) String() string {
	return strings.TrimSpace(strings.Join([]string{map[int]string{200: "200", 503: "503"}[r.status], strings.TrimSpace(r.Builder.String())}, " "))
}

// BenchmarkWarmStream is one warm request over the socket, with a Go client in
// Envoy's place, which takes the larger share of the time.
func BenchmarkWarmStream(b *testing.B) {
	p := newPlane(b, "10.0.0.1:80")
	s := startSidecar(b, p, func(c *config) { c.heartbeatInterval = 5 * time.Second })
	c := s.dial(b)
	first := ask(b, c, function("t"))
	answered(b, first)
	request := requestFor(function("t"))
	b.ReportAllocs()
	b.SetParallelism(32)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			warm(b, c, request)
		}
	})
}

func warm(b *testing.B, c extprocv3.ExternalProcessorClient, m *extprocv3.ProcessingRequest) {
	s, err := c.Process(b.Context())
	if err != nil {
		b.Error(err)
		return
	}
	if err := s.Send(m); err != nil {
		b.Error(err)
		return
	}
	if _, err := s.Recv(); err != nil {
		b.Error(err)
		return
	}
	_ = s.CloseSend() // the server's end follows
	_, _ = s.Recv()   // EOF
}
