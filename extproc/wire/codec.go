package wire

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Codec carries *Request and *Reply as the bytes that they are, and every other
// message, that of the health and reflection services, as gRPC does by default.
// Safe for concurrent use.
type Codec struct{ other encoding.CodecV2 }

// NewCodec returns a codec for grpc.ForceServerCodecV2.
func NewCodec() Codec { return Codec{encoding.GetCodecV2(proto.Name)} }

// Name is that of the protobuf codec: on the wire nothing differs.
func (Codec) Name() string { return proto.Name }

// Marshal implements encoding.CodecV2.
func (c Codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*Reply); ok {
		return r.parts, nil
	}
	return c.other.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*Request); ok {
		return r.receive(data)
	}
	return c.other.Unmarshal(data, v)
}
