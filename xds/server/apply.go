package server

import (
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	skipperpb "skipper/proto"
	"skipper/xds"
	"skipper/xds/resource"
)

// update is one resource to publish, or to remove with a nil resource.
type update struct {
	typeURL, name string
	resource      *discoveryv3.Resource
}

// Apply publishes a change as one step: no stream is sent a part of it
// without being marked for the rest. It never waits for a subscriber, and its
// cost follows the change and the size of the clusters it touches. The result
// is the generation to ask Unacknowledged about.
func (s *Server) Apply(c Change) uint64 {
	s.applying.Lock()
	defer s.applying.Unlock()
	now := time.Now()
	for _, p := range c.Families {
		s.world.Announce(now, p)
	}
	s.world.Remove(now, c.Remove...)
	for _, e := range c.Upsert {
		if err := e.Validate(); err != nil {
			s.skip(resourcev3.EndpointType, err)
			s.world.Remove(now, e.UID)
			continue
		}
		s.world.Upsert(now, e)
	}
	var updates []update
	if s.built {
		updates = s.rebuild(now)
	}
	return s.commit(updates, s.lists(c.Instances, c.Again))
}

func (s *Server) skip(typeURL string, err error) {
	label := s.tables[typeURL].label
	s.metrics.invalid.WithLabelValues(label).Inc()
	s.opts.Logger.Warn("resource left out: it cannot be published", zap.String("type", label), zap.Error(err))
}

// rebuild makes the resources that changed since the last time. Clusters come
// before their endpoints when they appear, and go before them. Of one type, a
// stream is sent them by name, so a shard comes before its routed cluster.
func (s *Server) rebuild(now time.Time) []update {
	diff := s.world.Flush(now)
	var out []update
	for _, p := range diff.Gone {
		for i := range s.opts.Shards {
			name := xds.ClusterName(p, i)
			out = append(out, update{resourcev3.ClusterType, xds.RoutedName(p, i), nil},
				update{resourcev3.ClusterType, name, nil}, update{resourcev3.EndpointType, name, nil})
		}
	}
	for _, p := range diff.Added {
		for i := range s.opts.Shards {
			c, routed := resource.Cluster(p, i, s.opts.Cluster), resource.Routed(p, i)
			out = s.encode(out, resourcev3.ClusterType, c.GetName(), c)
			out = s.encode(out, resourcev3.ClusterType, routed.GetName(), routed)
		}
	}
	for p, shards := range diff.Touched {
		for _, i := range shards {
			name := xds.ClusterName(p, i)
			out = s.encode(out, resourcev3.EndpointType, name, resource.LoadAssignment(name, s.world.Endpoints(p, i)))
		}
	}
	return out
}

func (s *Server) encode(out []update, typeURL, name string, m proto.Message) []update {
	r, err := resource.Encode(name, m)
	if err != nil {
		s.skip(typeURL, err)
		return out
	}
	return append(out, update{typeURL, name, r})
}

// lists encodes those that somebody is subscribed to. One that is subscribed
// to only after the look is not lost: its source is asked then, and shows it.
func (s *Server) lists(all []*skipperpb.FunctionInstances, again map[string]bool) []list {
	var out []list
	for _, m := range s.subscribed(all) {
		l, err := encodeList(m)
		if err != nil {
			s.skip(xds.InstancesTypeURL, err)
			continue
		}
		l.again = again[m.GetName()]
		out = append(out, l)
	}
	return out
}

func (s *Server) subscribed(all []*skipperpb.FunctionInstances) []*skipperpb.FunctionInstances {
	if len(all) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*skipperpb.FunctionInstances
	for _, m := range all {
		if s.tables[xds.InstancesTypeURL].entries[m.GetName()] != nil {
			out = append(out, m)
		}
	}
	return out
}

func encodeList(m *skipperpb.FunctionInstances) (list, error) {
	r, err := resource.EncodeInstances(resource.Instances(m.GetName(), m.GetInstances(), m.GetVersion()))
	return list{resource: r, version: m.GetVersion()}, err
}

// commit publishes and wakes the streams that have something to send.
func (s *Server) commit(updates []update, lists []list) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(updates)+len(lists) == 0 {
		return s.generation
	}
	s.generation++
	touched := map[*peer]bool{}
	for _, u := range updates {
		s.tables[u.typeURL].put(u.name, u.resource, touched)
	}
	for _, l := range lists {
		s.tables[xds.InstancesTypeURL].putList(l, touched)
	}
	for p := range touched {
		p.notify()
	}
	s.countResourcesLocked()
	return s.generation
}
