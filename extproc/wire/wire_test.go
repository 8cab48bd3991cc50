package wire

import (
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// reference reads a message with the generated types, as slowly as it likes.
func reference(b []byte) (Kind, Headers, error) {
	m := &extprocv3.ProcessingRequest{}
	if err := proto.Unmarshal(b, m); err != nil {
		return 0, Headers{}, err
	}
	var h Headers
	switch m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		for _, v := range m.GetRequestHeaders().GetHeaders().GetHeaders() {
			value := v.GetRawValue()
			if len(value) == 0 {
				value = []byte(v.GetValue())
			}
			h.set([]byte(v.GetKey()), value)
		}
		return RequestHeaders, h, nil
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		return ResponseTrailers, h, nil
	}
	return Other, h, nil
}

func headers(raw bool, kv ...string) *extprocv3.ProcessingRequest {
	m := &corev3.HeaderMap{}
	for i := 0; i < len(kv); i += 2 {
		h := &corev3.HeaderValue{Key: kv[i]}
		if raw {
			h.RawValue = []byte(kv[i+1])
		} else {
			h.Value = kv[i+1]
		}
		m.Headers = append(m.Headers, h)
	}
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extprocv3.HttpHeaders{Headers: m, EndOfStream: true},
	}}
}

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func samples(t testing.TB) map[string][]byte {
	all := []string{
		":path", "/healthz?a=b", ":method", "GET", "x-skipper-function", `{"a":1}`, "x-skipper-request", "abc",
		"x-envoy-attempt-count", "2", "grpc-timeout", "3S", "x-envoy-expected-rq-timeout-ms", "15", "x-other", "y",
	}
	one := encode(t, headers(true, all...))
	trailers := encode(t, &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}})
	return map[string][]byte{
		"nothing":                    nil,
		"raw values":                 one,
		"text values":                encode(t, headers(false, all...)),
		"repeated function":          encode(t, headers(true, "x-skipper-function", "1", "x-skipper-function", "2")),
		"two messages merged":        append(append([]byte{}, one...), encode(t, headers(true, "x-skipper-function", "2"))...),
		"headers, trailers":          append(append([]byte{}, one...), trailers...),
		"headers, trailers, headers": append(append(append([]byte{}, one...), trailers...), encode(t, headers(true, "x-skipper-function", "2"))...),
		"trailers, headers":          append(append([]byte{}, trailers...), one...),
		"trailers":                   trailers,
		"body":                       encode(t, &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte("x")}}}),
		"with attributes": encode(t, &extprocv3.ProcessingRequest{
			Attributes:        map[string]*structpb.Struct{"a": {}},
			ObservabilityMode: true,
			Request:           headers(true, all...).GetRequest(),
		}),
		"cut short":       one[:len(one)-3],
		"field as varint": {0x10, 0x05},
		"group":           {0x13, 0x14},
	}
}

func TestParseAgreesWithGeneratedTypes(t *testing.T) {
	for name, b := range samples(t) {
		t.Run(name, func(t *testing.T) { compare(t, b) })
	}
}

func FuzzParse(f *testing.F) {
	for _, b := range samples(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { compare(t, b) })
}

// compare reads b both ways. The generated types refuse more: text that is not
// UTF-8, and faults in parts that extproc skips.
func compare(t *testing.T, b []byte) {
	t.Helper()
	var r Request
	err := r.Parse(b)
	kind, h, want := reference(b)
	if want != nil {
		return
	}
	if err != nil {
		t.Fatalf("Parse(%x): %v, the generated types read it", b, err)
	}
	if r.Kind != kind {
		t.Errorf("kind is %d, want %d", r.Kind, kind)
	}
	if diff := cmp.Diff(texts(h), texts(r.Headers)); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	compareOther(t, b)
}

// compareOther looks for a header that Parse does not keep.
func compareOther(t *testing.T, b []byte) {
	t.Helper()
	var r Request
	if err := NewCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &r); err != nil {
		t.Fatal(err)
	}
	m, want := &extprocv3.ProcessingRequest{}, ""
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
	for _, v := range m.GetRequestHeaders().GetHeaders().GetHeaders() {
		if v.GetKey() == "x-other" {
			if want = string(v.GetRawValue()); want == "" {
				want = v.GetValue()
			}
		}
	}
	if got := string(r.Header("x-other")); got != want {
		t.Errorf("x-other is %q, want %q", got, want)
	}
	r.Free()
	if got := r.Header("x-other"); got != nil {
		t.Errorf("x-other is %q after Free", got)
	}
}

// texts makes absent and empty values equal.
func texts(h Headers) map[string]string {
	return map[string]string{
		"path": string(h.Path), "method": string(h.Method), "function": string(h.Function), "request": string(h.RequestID),
		"attempt": string(h.AttemptCount), "timeout": string(h.GRPCTimeout), "expected": string(h.ExpectedTimeout),
		"functions": strings.Repeat("I", h.Functions),
	}
}

func TestParseRefusesWhatIsCutShort(t *testing.T) {
	b := samples(t)["raw values"]
	for n := 1; n < len(b); n++ {
		var r Request
		err := r.Parse(b[:n])
		if _, _, want := reference(b[:n]); (err == nil) != (want == nil) {
			t.Fatalf("first %d bytes: %v, want %v", n, err, want)
		}
	}
}

func setOption(k, v string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: k, RawValue: []byte(v)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

func testID(c byte) (id [RequestIDLen]byte) {
	copy(id[:], strings.Repeat(string(c), RequestIDLen))
	return id
}

func TestWarmReplyIsTheWantedMessage(t *testing.T) {
	a := NewAnswer("uid-1", "skipper-http1-007", "10.0.0.7:8080", Names{"prod", "echo", "t"})
	id := testID('f')
	var w WarmReply
	metadata, err := structpb.NewStruct(map[string]any{
		"envoy.lb": map[string]any{"x-skipper-instance": "10.0.0.7:8080"},
		"skipper":  map[string]any{"namespace": "prod", "deployment": "echo", "tenant": "t"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{Response: &extprocv3.CommonResponse{
			HeaderMutation: &extprocv3.HeaderMutation{
				SetHeaders: []*corev3.HeaderValueOption{
					setOption("x-skipper-instance", "uid-1"), setOption("x-skipper-cluster", "skipper-http1-007"), setOption("x-skipper-request", string(id[:])),
				},
				RemoveHeaders: []string{"x-skipper-function"},
			},
			ClearRouteCache: true,
		}}},
		DynamicMetadata: metadata,
	}
	wantMessage(t, w.Set(a, id), want)
}

func TestImmediateIsTheWantedMessage(t *testing.T) {
	got := Immediate{Status: 429, GRPC: 8, Headers: [][2]string{{"x-skipper-reason", "limit_reached"}, {"retry-after", "5"}}, Body: "no\n", Details: "d"}
	want := &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{
			Status:     &typev3.HttpStatus{Code: typev3.StatusCode_TooManyRequests},
			Headers:    &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{setOption("x-skipper-reason", "limit_reached"), setOption("retry-after", "5")}},
			Body:       []byte("no\n"),
			GrpcStatus: &extprocv3.GrpcStatus{Status: 8},
			Details:    "d",
		},
	}}
	wantMessage(t, got.Reply(), want)
	metadata, err := structpb.NewStruct(map[string]any{"skipper": map[string]any{"namespace": "prod", "tenant": "t"}})
	if err != nil {
		t.Fatal(err)
	}
	got.Names, want.DynamicMetadata = Names{Namespace: "prod", Tenant: "t"}, metadata
	wantMessage(t, got.Reply(), want)
}

func TestMoreTimeIsTheWantedMessage(t *testing.T) {
	wantMessage(t, MoreTime(32500*time.Millisecond), &extprocv3.ProcessingResponse{OverrideMessageTimeout: durationpb.New(32500 * time.Millisecond)})
}

func TestUnchangedIsTheWantedMessage(t *testing.T) {
	wantMessage(t, Unchanged(&Request{Kind: ResponseTrailers}), &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}},
	})
	wantMessage(t, Unchanged(&Request{Kind: RequestHeaders}), &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}},
	})
	if got := Unchanged(&Request{}); got != nil {
		t.Errorf("other messages are answered with %x, want none", got.Bytes())
	}
}

func wantMessage(t *testing.T, r *Reply, want *extprocv3.ProcessingResponse) {
	t.Helper()
	got := &extprocv3.ProcessingResponse{}
	if err := proto.Unmarshal(r.Bytes(), got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

func TestCodecCarriesOtherMessagesToo(t *testing.T) {
	c := NewCodec()
	want := headers(true, "a", "b")
	b, err := c.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got := &extprocv3.ProcessingRequest{}
	if err := c.Unmarshal(b, got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

func TestWarmPathAllocatesNothing(t *testing.T) {
	a := NewAnswer("uid-1", "skipper-http1-007", "10.0.0.7:8080", Names{"prod", "echo", "t"})
	data := mem.BufferSlice{mem.SliceBuffer(samples(t)["raw values"])}
	c := NewCodec()
	var r Request
	var ids RequestIDs
	_ = ids.New()
	w := &WarmReply{}
	n := testing.AllocsPerRun(1000, func() {
		if err := c.Unmarshal(data, &r); err != nil {
			t.Fatal(err)
		}
		r.Free()
		if _, err := c.Marshal(w.Set(a, ids.New())); err != nil {
			t.Fatal(err)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func TestRequestIDsDiffer(t *testing.T) {
	var ids RequestIDs
	seen := map[[RequestIDLen]byte]bool{}
	for range 10_000 {
		id := ids.New()
		if seen[id] {
			t.Fatalf("id %s came twice", id[:])
		}
		seen[id] = true
	}
}
