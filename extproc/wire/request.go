package wire

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Kind is which part of an HTTP exchange a Request speaks of.
type Kind uint8

// The kinds that are told apart; whatever else Envoy may send is Other.
const (
	Other Kind = iota
	RequestHeaders
	ResponseTrailers
)

// Headers are the values of the request headers that are read; nil where the
// header is absent, the last value where it stands several times. They share
// the memory of the message that they were read from.
type Headers struct {
	Path, Method, Function, RequestID, AttemptCount []byte
	GRPCTimeout, ExpectedTimeout                    []byte
	// Functions is how often x-skipper-function stands in the request.
	Functions int
}

// Request is one decoded ProcessingRequest. The zero value is ready to be
// received into, again and again. Not safe for concurrent use.
type Request struct {
	Kind    Kind
	Headers Headers

	data mem.Buffer
}

var errTruncated = errors.New("ext_proc message is cut short")

// Field numbers of ProcessingRequest, HttpHeaders, HeaderMap and HeaderValue in
// Envoy's API v3.
const (
	fieldRequestHeaders   = 2
	fieldResponseTrailers = 7
	fieldHeadersMap       = 1
	fieldMapHeaders       = 1
	fieldHeaderKey        = 1
	fieldHeaderValue      = 2
	fieldHeaderRawValue   = 3
)

// Free gives the memory of the message back; Headers are nil afterwards.
func (r *Request) Free() {
	r.Headers = Headers{}
	if r.data != nil {
		r.data.Free()
		r.data = nil
	}
}

// Header looks for one more request header in the message, by reading it once
// more: for what few requests are asked for. The value shares the memory of the
// message; it is nil where the header is absent.
func (r *Request) Header(name string) (value []byte) {
	if r.data == nil || r.Kind != RequestHeaders {
		return nil
	}
	_ = fields(r.data.ReadOnlyData(), func(num protowire.Number, v []byte) error { // it was read without an error
		if num != fieldRequestHeaders {
			if num > fieldRequestHeaders && num <= fieldResponseTrailers {
				value = nil // as in Parse: another member of the oneof
			}
			return nil
		}
		return eachHeader(v, func(key, v []byte) {
			if string(key) == name {
				value = v
			}
		})
	})
	return value
}

// receive reads data, which stays referenced until Free or the next receive.
func (r *Request) receive(data mem.BufferSlice) error {
	r.Free()
	r.data = data.MaterializeToBuffer(mem.DefaultBufferPool())
	return r.Parse(r.data.ReadOnlyData())
}

// Parse decodes b into r. The values keep pointing into b. What a protobuf
// decoder refuses is refused, but for text that is not UTF-8.
func (r *Request) Parse(b []byte) error {
	r.Kind, r.Headers = Other, Headers{}
	last := protowire.Number(0)
	return fields(b, func(num protowire.Number, v []byte) error {
		if num < fieldRequestHeaders || num > fieldResponseTrailers {
			return nil
		}
		if num != last { // a oneof: another member replaces, the same one merges
			r.Kind, r.Headers = Other, Headers{}
		}
		last = num
		switch num {
		case fieldRequestHeaders:
			r.Kind = RequestHeaders
			return r.Headers.parse(v)
		case fieldResponseTrailers:
			r.Kind = ResponseTrailers
		}
		return nil
	})
}

func (h *Headers) parse(b []byte) error { return eachHeader(b, h.set) }

// eachHeader calls f with every header of an encoded HttpHeaders.
func eachHeader(b []byte, f func(key, value []byte)) error {
	return fields(b, func(num protowire.Number, v []byte) error {
		if num != fieldHeadersMap {
			return nil
		}
		return fields(v, func(num protowire.Number, v []byte) error {
			if num != fieldMapHeaders {
				return nil
			}
			return oneHeader(v, f)
		})
	})
}

func oneHeader(b []byte, f func(key, value []byte)) error {
	var key, value, raw []byte
	err := fields(b, func(num protowire.Number, v []byte) error {
		switch num {
		case fieldHeaderKey:
			key = v
		case fieldHeaderValue:
			value = v
		case fieldHeaderRawValue:
			raw = v
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(raw) > 0 {
		value = raw
	}
	f(key, value)
	return nil
}

func (h *Headers) set(key, value []byte) {
	switch string(key) { // compared in place, no copy is made
	case ":path":
		h.Path = value
	case ":method":
		h.Method = value
	case "x-skipper-function":
		h.Function = value
		h.Functions++
	case "x-skipper-request":
		h.RequestID = value
	case "x-envoy-attempt-count":
		h.AttemptCount = value
	case "grpc-timeout":
		h.GRPCTimeout = value
	case "x-envoy-expected-rq-timeout-ms":
		h.ExpectedTimeout = value
	}
}

// IsHealthCheck reports whether the request asks for `GET /healthz`.
func (h *Headers) IsHealthCheck() bool {
	path, _, _ := bytes.Cut(h.Path, []byte{'?'})
	return string(h.Method) == "GET" && string(path) == "/healthz"
}

// fields calls f with every length-delimited field of b; all others are checked
// and skipped, as a decoder does with fields that it does not know.
func fields(b []byte, f func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", errTruncated, protowire.ParseError(n))
		}
		b = b[n:]
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return fmt.Errorf("%w: %w", errTruncated, protowire.ParseError(n))
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", errTruncated, protowire.ParseError(n))
		}
		if err := f(num, v); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
