package envoy_test

import (
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"skipper/envoy"
)

// pick is where the processor sends a request in one pass.
type pick struct{ cluster, host, request string }

// processor stands in for extproc. Header X-Skipper-Function is the name of a
// route, set before requests come: one pick for each pass. A pass without a
// pick is refused at once, and so is an unknown name.
type processor struct {
	extprocv3.UnimplementedExternalProcessorServer
	ends chan error // one value per ended stream: io.EOF if it ended in order
	// hold and stuck are closed by tests. A function "held" is answered after
	// hold, with Envoy told to wait; "stuck" after stuck, with Envoy untold;
	// "held-later" is held in passes after the first.
	hold, stuck chan struct{}
	holding     atomic.Int64

	mu     sync.Mutex
	routes map[string][]pick
	left   map[string][]pick   // by request id: the picks of later passes
	seen   []map[string]string // headers per stream
}

func startProcessor(t testing.TB, socket string) (*processor, *grpc.Server) {
	t.Helper()
	p := &processor{routes: map[string][]pick{}, left: map[string][]pick{}, ends: make(chan error, 1000), hold: make(chan struct{}), stuck: make(chan struct{})}
	s := grpc.NewServer()
	extprocv3.RegisterExternalProcessorServer(s, p)
	serve(t, s, "unix", socket)
	return p, s
}

// route sends a function's requests to a shard's hosts, one per pass.
func (p *processor) route(function, shard string, hosts ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.routes[function] = nil
	for _, host := range hosts {
		p.routes[function] = append(p.routes[function], pick{cluster: shard + routed, host: host, request: "request-of-" + function})
	}
}

// Process answers the headers and then waits for the end of the request.
func (p *processor) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			p.ends <- errors.Join(err, stream.Context().Err())
			return nil
		}
		if err := p.wait(stream, req); err != nil {
			return err
		}
		if err := stream.Send(p.answer(req)); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
}

// wait holds the functions that are to be held.
func (p *processor) wait(stream extprocv3.ExternalProcessor_ProcessServer, req *extprocv3.ProcessingRequest) error {
	headers := headersOf(req)
	function := headers[envoy.HeaderFunction]
	if function == "" && strings.HasPrefix(headers[envoy.HeaderRequest], "request-of-held-later") {
		function = "held"
	}
	switch function {
	case "held":
		p.holding.Add(1)
		more := &extprocv3.ProcessingResponse{OverrideMessageTimeout: durationpb.New(20 * time.Second)}
		if err := stream.Send(more); err != nil {
			return err
		}
		<-p.hold
	case "stuck":
		<-p.stuck
	}
	return nil
}

func headersOf(req *extprocv3.ProcessingRequest) map[string]string {
	headers := map[string]string{}
	for _, h := range req.GetRequestHeaders().GetHeaders().GetHeaders() {
		headers[h.GetKey()] = string(h.GetRawValue())
	}
	return headers
}

func (p *processor) answer(req *extprocv3.ProcessingRequest) *extprocv3.ProcessingResponse {
	if req.GetRequestHeaders() == nil {
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}}
	}
	headers := headersOf(req)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, headers)
	request, picks := headers[envoy.HeaderRequest], p.left[headers[envoy.HeaderRequest]]
	if function := headers[envoy.HeaderFunction]; function != "" {
		request, picks = "request-of-"+function, p.routes[function]
	}
	if len(picks) == 0 {
		return refuse()
	}
	p.left[request] = picks[1:]
	return picks[0].response()
}

// attempts are the attempt counts that the streams so far have shown, "-" for
// none.
func (p *processor) attempts() []string {
	var out []string
	for _, headers := range p.requests() {
		n, ok := headers["x-envoy-attempt-count"]
		if !ok {
			n = "-"
		}
		out = append(out, n)
	}
	return out
}

func (p *processor) requests() []map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]map[string]string(nil), p.seen...)
}

func (c pick) response() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{
				ClearRouteCache: true,
				HeaderMutation: &extprocv3.HeaderMutation{
					RemoveHeaders: []string{envoy.HeaderFunction},
					SetHeaders: []*corev3.HeaderValueOption{
						setHeader(envoy.HeaderCluster, c.cluster),
						setHeader(envoy.HeaderInstance, "uid-of-"+c.host),
						setHeader(envoy.HeaderRequest, c.request),
						setHeader("x-other", "must not be let through"),
					},
				},
			},
		}},
		DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			envoy.MetadataNamespace: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				envoy.HeaderInstance: structpb.NewStringValue(c.host),
			}}),
		}},
	}
}

func refuse() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extprocv3.ImmediateResponse{
		Status: &typev3.HttpStatus{Code: typev3.StatusCode_ServiceUnavailable},
		Body:   []byte("nobody can answer"),
		Headers: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{
			setHeader(envoy.HeaderReason, "hold_timeout"), setHeader("retry-after", "7"),
		}},
	}}}
}

func setHeader(key, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: key, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}
