package delta

import (
	"maps"
	"slices"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// Lookup finds a resource; nil if there is none. The second result is false
// while it is not known yet whether there is one.
type Lookup func(name string) (*discoveryv3.Resource, bool)

// Stamp goes with a response.
type Stamp struct {
	Nonce      string
	At         time.Time
	Generation uint64
	// MaxBytes is about the size at which a response is closed and the rest
	// kept for the next; one resource is always sent.
	MaxBytes int
}

// Sent is a response and the resources in it that the client held before.
type Sent struct {
	Response *discoveryv3.DeltaDiscoveryResponse
	Updated  []string
}

// Next builds the next response; nil if there is nothing to say or the last
// one is not answered yet. Names are in order.
func (s *Subscription) Next(typeURL string, stamp Stamp, find Lookup) *Sent {
	if s.flight != nil || (len(s.dirty) == 0 && !s.owing) {
		return nil
	}
	out := &Sent{Response: &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: stamp.Nonce}}
	f := &flight{nonce: stamp.Nonce, at: stamp.At, generation: stamp.Generation, versions: map[string]string{}}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(s.dirty)) {
		if size >= stamp.MaxBytes {
			break
		}
		delete(s.dirty, name)
		if r, decided := find(name); decided {
			size += s.add(out, f, name, r)
		}
	}
	if len(f.versions) == 0 && !s.owing {
		return nil
	}
	s.owing = false
	s.flight = f
	return out
}

// add puts one resource, or its absence, into the response and returns its size.
func (s *Subscription) add(out *Sent, f *flight, name string, r *discoveryv3.Resource) int {
	m, held := s.known[name]
	if r == nil {
		out.Response.RemovedResources = append(out.Response.RemovedResources, name)
	} else {
		out.Response.Resources = append(out.Response.Resources, r)
	}
	if held && m.sent != "" && r != nil {
		out.Updated = append(out.Updated, name)
	}
	m.sent = r.GetVersion()
	f.versions[name] = m.sent
	s.known[name] = m
	return len(name) + proto.Size(r)
}
