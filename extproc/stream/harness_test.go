package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	skipperpb "skipper/proto"
	"skipper/proto/fn"

	"skipper/extproc/controller"
	"skipper/extproc/hold"
	"skipper/extproc/metrics"
	"skipper/extproc/table"
	"skipper/extproc/trust"
	"skipper/extproc/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience of the tests: an event that has not come by then never comes.
const eventually = 20 * time.Second

// fakeController answers GetInstance as the test says.
type fakeController struct {
	answer func(ctx context.Context, n int, r *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error)

	mu     sync.Mutex
	calls  int
	called chan int // one for each call, if it is set
}

func (c *fakeController) GetInstance(ctx context.Context, r *skipperpb.GetInstanceRequest, _ ...grpc.CallOption) (*skipperpb.GetInstanceResponse, error) {
	c.mu.Lock()
	c.calls++
	n := c.calls
	c.mu.Unlock()
	if c.called != nil {
		c.called <- n
	}
	i, err := c.answer(ctx, n, r)
	return &skipperpb.GetInstanceResponse{Instance: i}, err
}

func (c *fakeController) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

func instance(f *skipperpb.Function, n int, version uint64) *skipperpb.Instance {
	return &skipperpb.Instance{
		Function: f, Uid: fmt.Sprintf("uid-%d", n), Name: fmt.Sprintf("pod-%d", n),
		Addr: fmt.Sprintf("10.0.0.%d:8080", n), Cluster: "skipper-http1-001", Version: version,
	}
}

// always answers each call with an instance of its own.
func always(_ context.Context, n int, r *skipperpb.GetInstanceRequest) (*skipperpb.Instance, error) {
	return instance(r.GetFunction(), n, uint64(100+n)), nil
}

// rig is extproc without the network behind it.
type rig struct {
	*fakeController
	table    *table.Table
	hall     *hold.Hall
	server   *Server
	client   extprocv3.ExternalProcessorClient
	grpc     *grpc.Server
	released chan string
	registry *prometheus.Registry
}

type change func(*Options, *hold.Options)

// newRig is a rig that answers streams over gRPC.
func newRig(t testing.TB, c *fakeController, changes ...change) *rig {
	t.Helper()
	r := newCore(t, c, changes...)
	r.serve(t)
	return r
}

// newCore is a rig without gRPC: close its hall.
func newCore(t testing.TB, c *fakeController, changes ...change) *rig {
	t.Helper()
	r := &rig{fakeController: c, released: make(chan string, 10_000), registry: prometheus.NewRegistry()}
	r.table = table.New(table.Options{
		Staleness: time.Minute, Confirm: 30 * time.Second, Idle: time.Minute, Now: time.Now(),
		Woken: func(name string) { r.hall.Wake(name) },
	})
	m := metrics.New(r.registry)
	release := func(i *skipperpb.Instance) { r.released <- i.GetUid() }
	h := hold.Options{
		Asker:       &controller.Source{Client: c, Table: r.table, Observer: m},
		PerFunction: 1000, PerTenant: 2000, Total: 10_000, Attempts: 6, Backoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond,
		Orphan: func(i *table.Instance) { release(i.Proto) },
	}
	o := Options{
		Trust: trust.New(1024, nil, trust.Rules{}), Table: r.table, Metrics: m, Logger: zaptest.NewLogger(t), Release: release,
		HoldTimeout: eventually, LostLease: time.Minute, Attempts: 6,
		Backoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond, Quarantine: 10 * time.Second,
	}
	for _, change := range changes {
		change(&o, &h)
	}
	r.hall = hold.New(h)
	o.Hall = r.hall
	r.server = NewServer(o)
	return r
}

func (r *rig) serve(t testing.TB) {
	t.Helper()
	ln := bufconn.Listen(1 << 20)
	r.grpc = grpc.NewServer(grpc.ForceServerCodecV2(wire.NewCodec()), grpc.WaitForHandlers(true))
	r.server.Register(r.grpc)
	served := make(chan error, 1)
	go func() { served <- r.grpc.Serve(ln) }()
	conn, err := grpc.NewClient("passthrough:///extproc", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	r.client = extprocv3.NewExternalProcessorClient(conn)
	t.Cleanup(func() {
		_ = conn.Close() // a test may have closed it
		r.grpc.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		r.server.Wait()
		r.hall.Close()
	})
}

// inFlight is what the next heartbeat would say of all functions together.
func (r *rig) inFlight() map[string]uint32 {
	out := map[string]uint32{}
	for _, u := range r.table.Usage(time.Now()) {
		for uid, n := range u.InFlight {
			out[uid] += n
		}
	}
	return out
}

// metric is the value of a counter or gauge with the given label value.
func (r *rig) metric(t testing.TB, name, label string) float64 {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (len(m.GetLabel()) == 0 || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// call is one HTTP request as Envoy reports it.
type call struct {
	t      testing.TB
	stream extprocv3.ExternalProcessor_ProcessClient
	cancel context.CancelFunc
}

func (r *rig) open(t testing.TB, kv ...string) *call {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := r.client.Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cancel)
	c := &call{t: t, stream: s, cancel: cancel}
	m := &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: ":path", RawValue: []byte("/")}, {Key: ":method", RawValue: []byte("GET")}}}
	for i := 0; i < len(kv); i += 2 {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: kv[i], RawValue: []byte(kv[i+1])})
	}
	c.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: m}}})
	return c
}

// ask opens a stream for a request to f.
func (r *rig) ask(t testing.TB, f *skipperpb.Function, kv ...string) *call {
	t.Helper()
	return r.open(t, append([]string{"x-skipper-function", string(fn.Marshal(f))}, kv...)...)
}

func (c *call) send(m *extprocv3.ProcessingRequest) {
	c.t.Helper()
	if err := c.stream.Send(m); err != nil {
		c.t.Fatal(err)
	}
}

func (c *call) recv() *extprocv3.ProcessingResponse {
	c.t.Helper()
	m, err := c.stream.Recv()
	if err != nil {
		c.t.Fatalf("receive: %v", err)
	}
	return m
}

// answer skips the message that asks for more time.
func (c *call) answer() *extprocv3.ProcessingResponse {
	c.t.Helper()
	m := c.recv()
	if m.GetOverrideMessageTimeout() != nil {
		m = c.recv()
	}
	return m
}

// instance is the pod that the request was sent to.
func (c *call) instance() string {
	c.t.Helper()
	uid, _ := c.sent()
	return uid
}

// sent is the pod that the request was sent to, and the request's id.
func (c *call) sent() (uid, id string) {
	c.t.Helper()
	m := c.answer()
	if uid = setHeader(m, wire.InstanceHeader); uid == "" {
		c.t.Fatalf("answer names no instance: %v", m)
	}
	return uid, setHeader(m, wire.RequestHeader)
}

// setHeader is the value that an answer gives a request header.
func setHeader(m *extprocv3.ProcessingResponse, name string) string {
	for _, h := range m.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		if h.GetHeader().GetKey() == name {
			return string(h.GetHeader().GetRawValue())
		}
	}
	return ""
}

// again opens the stream of a further pass.
func (r *rig) again(t testing.TB, id, attempts string) *call {
	t.Helper()
	return r.open(t, wire.RequestHeader, id, "x-envoy-attempt-count", attempts)
}

// over ends the stream as Envoy does when the request is over, and waits for its end.
func (c *call) over() {
	c.t.Helper()
	if err := c.stream.CloseSend(); err != nil {
		c.t.Fatal(err)
	}
	for {
		_, err := c.stream.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			c.t.Fatalf("stream ended with %v, want EOF", err)
		}
	}
}

// until waits for a condition that other goroutines bring about.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(eventually)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("never: %s", what)
		}
	}
}

func function(tenant string) *skipperpb.Function {
	return &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: tenant, Scale: &skipperpb.Scale{MaxInstances: 5}}
}

func oneshot() *skipperpb.Function {
	f := function("t")
	f.Oneshot = true
	return f
}

func reasonHeader(m *extprocv3.ProcessingResponse) string {
	for _, h := range m.GetImmediateResponse().GetHeaders().GetSetHeaders() {
		if h.GetHeader().GetKey() == "x-skipper-reason" {
			return string(h.GetHeader().GetRawValue())
		}
	}
	return ""
}
