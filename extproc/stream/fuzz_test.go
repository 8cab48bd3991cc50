package stream

import (
	"errors"
	"io"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"skipper/proto/fn"

	"skipper/extproc/hold"
	"skipper/extproc/wire"
)

// played is a stream that delivers what the fuzzer wrote, and then its end. Both
// sides are used by one goroutine each, as gRPC demands.
type played struct {
	grpc.ServerStream
	codec wire.Codec
	in    [][]byte
	end   error
}

func (p *played) RecvMsg(m any) error {
	if len(p.in) == 0 {
		return p.end
	}
	b := p.in[0]
	p.in = p.in[1:]
	return p.codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m)
}

func (p *played) SendMsg(m any) error {
	out, err := p.codec.Marshal(m)
	if err != nil {
		return err
	}
	return proto.Unmarshal(out.Materialize(), &extprocv3.ProcessingResponse{})
}

// FuzzStream plays any messages in any order: whatever comes, nothing is left in
// progress after the end, and every answer is a message that Envoy can read.
func FuzzStream(f *testing.F) {
	request := func(kv ...string) []byte {
		m := &corev3.HeaderMap{}
		for i := 0; i < len(kv); i += 2 {
			m.Headers = append(m.Headers, &corev3.HeaderValue{Key: kv[i], RawValue: []byte(kv[i+1])})
		}
		b, err := proto.Marshal(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: m}}})
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	trailers := []byte{0x3a, 0}
	good := request("x-skipper-function", string(fn.Marshal(function("t"))))
	once := request("x-skipper-function", string(fn.Marshal(oneshot())))
	f.Add(good, trailers, []byte{}, true)
	f.Add(once, trailers, good, true)
	f.Add(trailers, good, once, false)
	f.Add(request(":path", "/healthz", ":method", "GET"), good, good, false)
	f.Add([]byte{0x12}, good, trailers, true)
	quiet := func(o *Options, _ *hold.Options) { o.Logger = zap.NewNop() } // a fuzz target must not log through f
	r := newRig(f, &fakeController{answer: always}, quiet)
	f.Fuzz(func(t *testing.T, a, b, c []byte, over bool) {
		p := &played{codec: wire.NewCodec(), in: [][]byte{a, b, c}, end: io.EOF}
		if !over {
			p.end = errors.New("connection died")
		}
		_ = r.server.Process(p) // an error is an answer too
		r.server.Wait()
		r.table.Sweep(time.Now().Add(time.Hour), true)
		if n := r.inFlight(); len(n) != 0 {
			t.Errorf("left in progress: %v", n)
		}
		for len(r.released) > 0 {
			<-r.released
		}
	})
}
