package resource

import (
	"fmt"
	"strconv"

	"github.com/cespare/xxhash/v2"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Encode makes the wire form of a resource. Its version follows from its
// content alone, so that replicas agree and a reconnect sends nothing twice.
// The result may be shared, and must not be changed. The error is of strings
// in m that are not UTF-8.
func Encode(name string, m proto.Message) (*discoveryv3.Resource, error) {
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, m, deterministic()); err != nil {
		return nil, fmt.Errorf("encode resource %.80q: %w", name, err)
	}
	return &discoveryv3.Resource{Name: name, Version: contentVersion(a.GetValue()), Resource: a}, nil
}

// deterministic keeps the order of map entries, and with it the version.
func deterministic() proto.MarshalOptions { return proto.MarshalOptions{Deterministic: true} }

func contentVersion(b []byte) string {
	return strconv.FormatUint(xxhash.Sum64(b), 16)
}

// pack encodes a message of ours whose strings are constants.
func pack(m proto.Message) *anypb.Any {
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, m, deterministic()); err != nil {
		panic(fmt.Sprintf("encode %T: %v", m, err))
	}
	return a
}
