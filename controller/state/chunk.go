package state

import (
	"google.golang.org/protobuf/proto"

	skipperpb "skipper/proto"
)

// split divides a part into messages of at most limit bytes; one entry alone
// may be larger. It takes the fields that a part has.
func split(s *skipperpb.ClusterState, limit int) []*skipperpb.ClusterState {
	c := chunks{limit: limit}
	c.begin()
	for _, r := range s.GetReplicas() {
		c.grow(r)
		c.last.Replicas = append(c.last.Replicas, r)
	}
	for _, p := range s.GetPools() {
		c.grow(p)
		c.last.Pools = append(c.last.Pools, p)
	}
	for _, e := range s.GetEnvoys() {
		c.grow(e)
		c.last.Envoys = append(c.last.Envoys, e)
	}
	for _, e := range s.GetExtprocs() {
		c.grow(e)
		c.last.Extprocs = append(c.last.Extprocs, e)
	}
	for _, e := range s.GetEvents() {
		c.grow(e)
		c.last.Events = append(c.last.Events, e)
	}
	for _, one := range s.GetSupervisors() {
		c.grow(one)
		c.last.Supervisors = append(c.last.Supervisors, one)
	}
	return c.all
}

// chunks are messages, of which the last is being filled.
type chunks struct {
	limit, size int
	all         []*skipperpb.ClusterState
	last        *skipperpb.ClusterState
}

func (c *chunks) begin() {
	c.last, c.size = &skipperpb.ClusterState{}, 0
	c.all = append(c.all, c.last)
}

// grow begins another message where m does not fit.
func (c *chunks) grow(m proto.Message) {
	n := proto.Size(m) + 8 // tag and length
	if c.size > 0 && c.size+n > c.limit {
		c.begin()
	}
	c.size += n
}

// join is the inverse of split, message by message.
func join(into, part *skipperpb.ClusterState) {
	into.Replicas = append(into.Replicas, part.GetReplicas()...)
	into.Pools = append(into.Pools, part.GetPools()...)
	into.Envoys = append(into.Envoys, part.GetEnvoys()...)
	into.Extprocs = append(into.Extprocs, part.GetExtprocs()...)
	into.Events = append(into.Events, part.GetEvents()...)
	into.Supervisors = append(into.Supervisors, part.GetSupervisors()...)
}
