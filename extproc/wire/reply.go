package wire

import (
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of ProcessingResponse and the messages below it, Envoy's API v3.
const (
	fieldReplyRequestHeaders   = 1
	fieldReplyResponseTrailers = 6
	fieldReplyImmediate        = 7
	fieldReplyMetadata         = 8
	fieldReplyOverrideTimeout  = 10
	fieldHeadersCommon         = 1
	fieldCommonMutation        = 2
	fieldCommonClearRoute      = 5
	fieldMutationSet           = 1
	fieldMutationRemove        = 2
	fieldOptionHeader          = 1
	fieldOptionAction          = 3
	fieldImmediateStatus       = 1
	fieldImmediateHeaders      = 2
	fieldImmediateBody         = 3
	fieldImmediateGRPC         = 4
	fieldImmediateDetails      = 5
	fieldStructFields          = 1
	fieldMapKey                = 1
	fieldMapValue              = 2
	fieldValueString           = 3
	fieldValueStruct           = 5
	fieldDurationSeconds       = 1
	fieldDurationNanos         = 2
	fieldStatusCode            = 1
)

// overwriteIfExistsOrAdd is HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD.
const overwriteIfExistsOrAdd = 2

// Names that the Envoy configuration reads the choice of a host from.
const (
	InstanceHeader    = "x-skipper-instance"
	ClusterHeader     = "x-skipper-cluster"
	RequestHeader     = "x-skipper-request"
	FunctionHeader    = "x-skipper-function"
	MetadataNamespace = "envoy.lb"
	MetadataHostKey   = "x-skipper-instance"
	// FunctionMetadata is the metadata that access logs read the Names from.
	FunctionMetadata = "skipper"
)

// Names are what an access log knows a function by; empty ones are left out.
type Names struct{ Namespace, Deployment, Tenant string }

// RequestIDLen is the length of a request id: 128 bits in hexadecimal.
const RequestIDLen = 32

// Reply is one encoded ProcessingResponse. It must not be changed once it was
// handed to gRPC, which may read it after the call to send has returned.
type Reply struct {
	parts mem.BufferSlice
}

// Bytes is a copy of the whole message.
func (r *Reply) Bytes() []byte { return r.parts.Materialize() }

func replyOf(b []byte) *Reply { return &Reply{mem.BufferSlice{mem.SliceBuffer(b)}} }

// Answer is the part of a warm answer that is the same for all requests to one
// instance. Immutable, safe for concurrent use.
type Answer struct{ head mem.Buffer }

// NewAnswer makes the answer that sends a request to an instance of the function
// with the given names: uid is the pod's, cluster the Envoy cluster that leads to
// it, addr its "ip:port".
func NewAnswer(uid, cluster, addr string, n Names) Answer {
	var m []byte
	m = appendSet(m, InstanceHeader, uid)
	m = appendSet(m, ClusterHeader, cluster)
	m = appendText(m, fieldMutationRemove, FunctionHeader)
	common := appendMessage(nil, fieldCommonMutation, m)
	common = appendVarint(common, fieldCommonClearRoute, 1)
	out := appendMessage(nil, fieldReplyRequestHeaders, appendMessage(nil, fieldHeadersCommon, common))
	host := appendEntry(nil, MetadataHostKey, appendText(nil, fieldValueString, addr))
	ns := appendEntry(nil, MetadataNamespace, appendMessage(nil, fieldValueStruct, host))
	ns = n.append(ns)
	return Answer{mem.SliceBuffer(appendMessage(out, fieldReplyMetadata, ns))}
}

// Lengths of the nested messages that carry the request id alone, innermost
// first; all are below 128, so that each length takes one byte.
const (
	headerLen   = 2 + len(RequestHeader) + 2 + RequestIDLen
	optionLen   = 2 + headerLen + 2
	mutationLen = 2 + optionLen
	commonLen   = 2 + mutationLen
	headersLen  = 2 + commonLen
	tailLen     = 2 + headersLen
)

// WarmReply is the memory for one warm answer, kept in the state of a stream so
// that answering allocates nothing. It is used once.
type WarmReply struct {
	Reply
	tail  tail
	slots [2]mem.Buffer
}

type tail struct {
	mem.SliceBuffer
	bytes [tailLen]byte
}

// Set makes w the answer a for the request with the given id.
func (w *WarmReply) Set(a Answer, id [RequestIDLen]byte) *Reply {
	b := append(w.tail.bytes[:0],
		fieldReplyRequestHeaders<<3|2, byte(headersLen),
		fieldHeadersCommon<<3|2, byte(commonLen),
		fieldCommonMutation<<3|2, byte(mutationLen),
		fieldMutationSet<<3|2, byte(optionLen),
		fieldOptionHeader<<3|2, byte(headerLen),
		fieldHeaderKey<<3|2, byte(len(RequestHeader)))
	b = append(b, RequestHeader...)
	b = append(b, fieldHeaderRawValue<<3|2, RequestIDLen)
	b = append(b, id[:]...)
	w.tail.SliceBuffer = append(b, fieldOptionAction<<3, overwriteIfExistsOrAdd)
	w.slots = [2]mem.Buffer{a.head, &w.tail}
	w.parts = w.slots[:]
	return &w.Reply
}

// Immediate is an answer that extproc gives in place of a pod.
type Immediate struct {
	// Status is the HTTP status; GRPC the code that a gRPC client sees.
	Status, GRPC uint32
	// Headers are set in the order given.
	Headers [][2]string
	Body    string
	// Details become Envoy's response code details in access logs.
	Details string
	// Names of the function, where it is known.
	Names Names
}

// Reply encodes the answer.
func (i Immediate) Reply() *Reply {
	m := appendMessage(nil, fieldImmediateStatus, appendVarint(nil, fieldStatusCode, uint64(i.Status)))
	var set []byte
	for _, h := range i.Headers {
		set = appendSet(set, h[0], h[1])
	}
	m = appendMessage(m, fieldImmediateHeaders, set)
	m = appendText(m, fieldImmediateBody, i.Body)
	m = appendMessage(m, fieldImmediateGRPC, appendVarint(nil, fieldStatusCode, uint64(i.GRPC)))
	m = appendText(m, fieldImmediateDetails, i.Details)
	out := appendMessage(nil, fieldReplyImmediate, m)
	if i.Names != (Names{}) {
		out = appendMessage(out, fieldReplyMetadata, i.Names.append(nil))
	}
	return replyOf(out)
}

// append adds the names to the fields of the metadata b.
func (n Names) append(b []byte) []byte {
	var fields []byte
	for _, e := range [][2]string{{"namespace", n.Namespace}, {"deployment", n.Deployment}, {"tenant", n.Tenant}} {
		if e[1] != "" {
			fields = appendEntry(fields, e[0], appendText(nil, fieldValueString, e[1]))
		}
	}
	if fields == nil {
		return b
	}
	return appendEntry(b, FunctionMetadata, appendMessage(nil, fieldValueStruct, fields))
}

// MoreTime asks Envoy to wait d for the next message; it can be used once per
// HTTP message, and is ignored above Envoy's max_message_timeout.
func MoreTime(d time.Duration) *Reply {
	v := appendVarint(nil, fieldDurationSeconds, uint64(d/time.Second))
	v = appendVarint(v, fieldDurationNanos, uint64(d%time.Second))
	return replyOf(appendMessage(nil, fieldReplyOverrideTimeout, v))
}

// Unchanged leaves the part of the exchange that r speaks of as it is; nil where
// r asks for no answer.
func Unchanged(r *Request) *Reply {
	switch r.Kind {
	case RequestHeaders:
		return replyOf([]byte{fieldReplyRequestHeaders<<3 | 2, 0})
	case ResponseTrailers:
		return replyOf([]byte{fieldReplyResponseTrailers<<3 | 2, 0})
	}
	return nil
}

func appendSet(b []byte, key, value string) []byte {
	h := appendText(appendText(nil, fieldHeaderKey, key), fieldHeaderRawValue, value)
	o := appendVarint(appendMessage(nil, fieldOptionHeader, h), fieldOptionAction, overwriteIfExistsOrAdd)
	return appendMessage(b, fieldMutationSet, o)
}

// appendEntry adds one entry of Struct.fields; value is an encoded Value.
func appendEntry(b []byte, key string, value []byte) []byte {
	return appendMessage(b, fieldStructFields, appendMessage(appendText(nil, fieldMapKey, key), fieldMapValue, value))
}

func appendMessage(b []byte, num protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), m)
}

func appendText(b []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func appendVarint(b []byte, num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}
