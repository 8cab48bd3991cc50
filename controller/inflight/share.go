package inflight

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	skipperpb "skipper/proto"
)

// Bounds of what replicas tell each other.
const (
	// maxMessage keeps a message below the 4 MiB at which gRPC refuses one.
	maxMessage = 3 << 20
	// maxPods of one Envoy keep what cannot be divided below that too, with
	// UIDs of 36 bytes.
	maxPods = 65_536
	maxText = 253 // node ids and IPs
	maxUID  = 64
)

// Share builds what this replica has to tell: what its own Envoys have in
// progress, those that left and were not heard elsewhere included. None if
// there is nothing to tell. The messages share the store's maps: read only.
func (s *Store) Share(self string, now time.Time) []*skipperpb.ShareLoadRequest {
	return batch(self, s.here(now), maxMessage)
}

func (s *Store) here(now time.Time) []*skipperpb.EnvoyLoad {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []*skipperpb.EnvoyLoad
	for _, node := range slices.Sorted(maps.Keys(s.nodes)) {
		said, ok := s.nodes[node].here()
		if !ok || now.Sub(said.received) > s.cfg.Expiry || len(said.inFlight) > maxPods {
			continue
		}
		out = append(out, &skipperpb.EnvoyLoad{
			NodeId: node, Connected: said.connected, InFlight: said.inFlight,
			Age: durationpb.New(max(now.Sub(said.received), 0)),
		})
	}
	return out
}

// batch divides envoys into messages of at most limit bytes each; one Envoy
// alone may be larger.
func batch(self string, envoys []*skipperpb.EnvoyLoad, limit int) []*skipperpb.ShareLoadRequest {
	var out []*skipperpb.ShareLoadRequest
	size := limit
	for _, e := range envoys {
		n := proto.Size(e) + 8 // tag and length
		if size+n > limit {
			out = append(out, &skipperpb.ShareLoadRequest{SenderIp: self})
			size = len(self) + 8
		}
		last := out[len(out)-1]
		last.Envoys = append(last.Envoys, e)
		size += n
	}
	return out
}

// transit is how long a share may be under way. Receipt is reckoned so much
// earlier, so that no word is taken for younger than it is.
const transit = 2 * time.Second

// Hear takes in what another replica tells, which must not be changed
// afterwards. A message that is wrong is refused as a whole, and the error says
// what is wrong; where there are too many Envoys, the rest is left out.
func (s *Store) Hear(r *skipperpb.ShareLoadRequest, now time.Time) error {
	if err := check(r); err != nil {
		return err
	}
	for _, e := range r.GetEnvoys() {
		received := now.Add(-e.GetAge().AsDuration() - transit)
		if now.Sub(received) > s.cfg.Expiry {
			continue
		}
		if !s.put(e.GetNodeId(), source{sender: r.GetSenderIp()}, word{received: received, connected: e.GetConnected(), inFlight: withoutZeros(e.GetInFlight())}, now) {
			return fmt.Errorf("%d Envoys are known already, which is the most", maxNodes)
		}
	}
	return nil
}

func check(r *skipperpb.ShareLoadRequest) error {
	if n := len(r.GetSenderIp()); n == 0 || n > maxText {
		return fmt.Errorf("sender_ip has %d bytes: set 1 to %d", n, maxText)
	}
	if n := len(r.GetEnvoys()); n > maxNodes {
		return fmt.Errorf("%d Envoys in one message, at most %d are taken", n, maxNodes)
	}
	for i, e := range r.GetEnvoys() {
		if err := checkEnvoy(e); err != nil {
			return fmt.Errorf("envoys[%d]: %w", i, err)
		}
	}
	return nil
}

func checkEnvoy(e *skipperpb.EnvoyLoad) error {
	if n := len(e.GetNodeId()); n == 0 || n > maxText {
		return fmt.Errorf("node_id has %d bytes: set 1 to %d", n, maxText)
	}
	if age := e.GetAge(); age.CheckValid() != nil || age.AsDuration() < 0 {
		return fmt.Errorf("age of node %q is missing, negative or no duration", e.GetNodeId())
	}
	if n := len(e.GetInFlight()); n > maxPods {
		return fmt.Errorf("node %q has %d pods in progress, at most %d are taken", e.GetNodeId(), n, maxPods)
	}
	for uid := range e.GetInFlight() {
		if n := len(uid); n == 0 || n > maxUID {
			return fmt.Errorf("node %q names a pod UID of %d bytes: 1 to %d are taken", e.GetNodeId(), n, maxUID)
		}
	}
	return nil
}

func withoutZeros(m map[string]uint32) map[string]uint32 {
	for uid, n := range m {
		if n == 0 {
			delete(m, uid)
		}
	}
	return m
}
