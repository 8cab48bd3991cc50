package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"skipper/controller/config"
	"skipper/proto/fn"
	"skipper/proto/tracing/tracingtest"

	"skipper/envoy/envoytest"
)

// router is extproc as Envoy's sidecar runs it, speaking to one controller.
type router struct {
	cmd  *exec.Cmd
	conn *grpc.ClientConn
}

// startRouter builds and runs extproc; further arguments are flags.
func startRouter(t *testing.T, ip, port string, args ...string) *router {
	t.Helper()
	program := filepath.Join(t.TempDir(), "extproc")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, "skipper/cmd/extproc")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build extproc: %v\n%s", err, out)
	}
	socket, web := filepath.Join(envoytest.SocketDir(t), "s"), envoytest.FreePorts(t, 1)[0]
	r := &router{cmd: exec.Command(program, append([]string{
		"--controller-service-host", ip, "--controller-port", port, "--insecure-plaintext",
		"--listen", socket, "--web-host", "127.0.0.1", "--web-port", strconv.Itoa(int(web)), "--router-ip", "10.9.9.9", "--envoy-node-id", "e",
	}, args...)...)}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.stop(t) })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	envoytest.Eventually(t, "extproc is ready", func() bool {
		res, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", web))
		if err != nil {
			return false
		}
		defer res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	r.conn = conn
	return r
}

// stop ends extproc as a kubelet does, and waits; twice is harmless.
func (r *router) stop(t *testing.T) {
	t.Helper()
	if r.conn != nil {
		_ = r.conn.Close()
	}
	if r.cmd.ProcessState != nil {
		return
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("extproc ended with %v", err)
	}
}

// request has extproc answer a request for the tenant, as Envoy would; it says
// whether that names an instance.
func (r *router) request(t *testing.T, tenant, traceparent string) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := extprocv3.NewExternalProcessorClient(r.conn).Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	headers := &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
		{Key: ":path", RawValue: []byte("/")},
		{Key: ":method", RawValue: []byte("GET")},
		{Key: "x-skipper-function", RawValue: fn.Marshal(function(tenant))},
		{Key: "traceparent", RawValue: []byte(traceparent)},
	}}
	if err := s.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: headers}}}); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.GetOverrideMessageTimeout() == nil {
			return m.GetDynamicMetadata().GetFields()["envoy.lb"] != nil
		}
	}
}

// below are the children of a span.
func below(spans []tracingtest.Span, parent string) map[string]tracingtest.Span {
	out := map[string]tracingtest.Span{}
	for _, s := range spans {
		if s.Parent == parent {
			out[s.Name] = s
		}
	}
	return out
}

func ofTrace(spans []tracingtest.Span, trace string) (out []tracingtest.Span) {
	for _, s := range spans {
		if s.Trace == trace {
			out = append(out, s)
		}
	}
	return out
}

// coldStart is what a trace says of the cold start below the client's span, and
// how often a controller forwarded the call.
func coldStart(spans []tracingtest.Span, client string) (said map[string]string, forwarded int) {
	const call = "skipper.ControllerService/GetInstance"
	cold := below(spans, client)["cold start"]
	served := below(spans, cold.ID)[call]
	if next, ok := below(spans, served.ID)[call]; ok {
		served, forwarded = next, 1
	}
	stages := below(spans, served.ID)
	said = map[string]string{
		"by": cold.Service, "cold start": cold.Attributes["skipper.outcome"], "tenant": cold.Attributes["skipper.tenant"],
		"instance": cold.Attributes["skipper.instance"], "assigned": stages["assign"].Attributes["skipper.instance"],
		"answered by": served.Service, "answer": served.Attributes["skipper.outcome"],
	}
	for _, stage := range []string{"wait for pod", "claim", "assign"} {
		said[stage] = stages[stage].Attributes["skipper.outcome"]
	}
	return said, forwarded
}

// checkColdStart looks at a tenant's trace, and returns how often its call was forwarded.
func checkColdStart(t *testing.T, spans []tracingtest.Span, client, tenant string) (forwarded int) {
	t.Helper()
	got, forwarded := coldStart(spans, client)
	want := map[string]string{
		"by": "skipper-extproc", "cold start": "sent", "tenant": tenant, "instance": got["assigned"], "assigned": got["assigned"],
		"answered by": "skipper-controller", "answer": got["answer"], "wait for pod": "reserved", "claim": "won", "assign": "accepted",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tenant %s (-want +got):\n%s\n%+v", tenant, diff, spans)
	}
	// A push of the new instance may be there before the answer: then extproc
	// needs the answer no more.
	if answer := got["answer"]; answer != "OK" && answer != "Canceled" {
		t.Errorf("tenant %s: answer is %s", tenant, answer)
	}
	return forwarded
}

// TestColdStartIsOneTrace follows cold requests from the client's own span
// through extproc and two controllers, the first of which forwards what the
// other is responsible for.
func TestColdStartIsOneTrace(t *testing.T) {
	const tenants, client = 8, "b7ad6b7169203331"
	collector := tracingtest.Start(t)
	c := startCrowd(t, 2, tenants+1, func(cfg *config.Config) { cfg.OTLPEndpoint = collector.URL })
	_, port, err := net.SplitHostPort(strings.TrimPrefix(c.replicas[0].conn.Target(), "passthrough:///"))
	if err != nil {
		t.Fatal(err)
	}
	r := startRouter(t, c.ips[0], port, "--otlp-endpoint", collector.URL)
	traceOf := func(i int) string { return fmt.Sprintf("0af7651916cd43dd8448eb211c8031%02x", i) }
	for i := range tenants {
		for range 2 { // the second one is warm
			if !r.request(t, fmt.Sprint("t", i), "00-"+traceOf(i)+"-"+client+"-01") {
				t.Fatalf("request of tenant %d got no instance", i)
			}
		}
	}
	r.request(t, "unsampled", "00-"+traceOf(255)+"-"+client+"-00")
	r.stop(t)
	for _, w := range c.replicas {
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	}
	forwarded := 0
	for i := range tenants {
		forwarded += checkColdStart(t, ofTrace(collector.Spans(), traceOf(i)), client, fmt.Sprint("t", i))
	}
	if forwarded == 0 || forwarded == tenants {
		t.Errorf("%d of %d calls were forwarded, want some", forwarded, tenants)
	}
	if spans := ofTrace(collector.Spans(), traceOf(255)); len(spans) > 0 {
		t.Errorf("a trace that the client does not sample has %+v", spans)
	}
}
