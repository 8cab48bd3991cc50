package stream

import (
	"io"
	"testing"
	"time"
	"unsafe"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"

	"skipper/extproc/wire"
)

// scripted is a stream without a network: one message, then its end.
type scripted struct {
	grpc.ServerStream
	codec wire.Codec
	in    mem.BufferSlice
	reads int
	sent  int
}

func (s *scripted) RecvMsg(m any) error {
	if s.reads++; s.reads > 1 {
		return io.EOF
	}
	return s.codec.Unmarshal(s.in, m)
}

func (s *scripted) SendMsg(m any) error {
	out, err := s.codec.Marshal(m)
	s.sent = out.Len()
	return err
}

// warmRig is a server whose table holds 20 instances of one function.
func warmRig(t testing.TB) (*Server, *scripted) {
	t.Helper()
	r := newRig(t, &fakeController{answer: always})
	f := function("t")
	r.table.Function(headerOf(f))
	m := &skipperpb.FunctionInstances{Name: xds.InstancesName(fn.KeyOf(f)), Version: 10}
	for n := range 20 {
		m.Instances = append(m.Instances, instance(f, n, 9))
	}
	r.table.Push(m, time.Now())
	return r.server, script(t, f)
}

// script is the stream of a request to f.
func script(t testing.TB, f *skipperpb.Function) *scripted {
	t.Helper()
	headers := &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
		{Key: ":path", RawValue: []byte("/some/path?with=query")},
		{Key: ":method", RawValue: []byte("GET")},
		{Key: "x-skipper-function", RawValue: fn.Marshal(f)},
		{Key: "x-envoy-expected-rq-timeout-ms", RawValue: []byte("15000")},
	}}
	b, err := proto.Marshal(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: headers}}})
	if err != nil {
		t.Fatal(err)
	}
	return &scripted{codec: wire.NewCodec(), in: mem.BufferSlice{mem.SliceBuffer(b)}}
}

// TestWarmStreamAllocatesItsStateOnly pins what a warm request costs besides
// gRPC: the state of the stream.
func TestWarmStreamAllocatesItsStateOnly(t *testing.T) {
	s, stream := warmRig(t)
	n := testing.AllocsPerRun(1000, func() {
		stream.reads = 0
		if err := s.Process(stream); err != nil {
			t.Fatal(err)
		}
	})
	if stream.sent < 100 {
		t.Fatalf("answer has %d bytes", stream.sent)
	}
	if n > 1 {
		t.Errorf("%v allocations, want 1", n)
	}
}

func TestStateOfAStreamIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(session{}); n > 512 {
		t.Errorf("%d bytes: the allocator treats larger ones worse", n)
	}
}

func BenchmarkWarmDecision(b *testing.B) {
	s, stream := warmRig(b)
	b.ReportAllocs()
	for b.Loop() {
		stream.reads = 0
		if err := s.Process(stream); err != nil {
			b.Fatal(err)
		}
	}
}
