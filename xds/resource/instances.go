package resource

import (
	"cmp"
	"fmt"
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	skipperpb "skipper/proto"
)

// Instances is the resource that tells extproc the ready instances of one
// function: sorted by UID, each UID once (its highest version). CPU and memory
// usage are left out, because nobody routes by them and each of their changes
// would be a push. The instances passed in are not changed; the result may
// share them.
func Instances(name string, instances []*skipperpb.Instance, version uint64) *skipperpb.FunctionInstances {
	sorted := make([]*skipperpb.Instance, 0, len(instances))
	for _, i := range instances {
		if i != nil {
			sorted = append(sorted, withoutUsage(i))
		}
	}
	slices.SortStableFunc(sorted, func(a, b *skipperpb.Instance) int {
		return cmp.Or(cmp.Compare(a.GetUid(), b.GetUid()), cmp.Compare(b.GetVersion(), a.GetVersion()))
	})
	sorted = slices.CompactFunc(sorted, func(a, b *skipperpb.Instance) bool { return a.GetUid() == b.GetUid() })
	return &skipperpb.FunctionInstances{Name: name, Instances: sorted, Version: version}
}

func withoutUsage(i *skipperpb.Instance) *skipperpb.Instance {
	if i.GetCpuUsageMilli() == 0 && i.GetMemoryUsageMib() == 0 {
		return i
	}
	c := proto.CloneOf(i)
	c.CpuUsageMilli, c.MemoryUsageMib = 0, 0
	return c
}

// EncodeInstances makes the wire form of m. Its xDS version follows from the
// instances alone: neither m.Version nor theirs count, because they rise with
// every event of the cluster while what is routed to stays the same. The error
// is of strings that are not UTF-8.
func EncodeInstances(m *skipperpb.FunctionInstances) (*discoveryv3.Resource, error) {
	r, err := Encode(m.GetName(), m)
	if err != nil {
		return nil, err
	}
	b, err := deterministic().Marshal(withoutVersions(m))
	if err != nil {
		return nil, fmt.Errorf("encode instances %.80q: %w", m.GetName(), err)
	}
	r.Version = contentVersion(b)
	return r, nil
}

func withoutVersions(m *skipperpb.FunctionInstances) *skipperpb.FunctionInstances {
	c := &skipperpb.FunctionInstances{Name: m.GetName(), Instances: make([]*skipperpb.Instance, len(m.GetInstances()))}
	for n, i := range m.GetInstances() {
		c.Instances[n] = proto.CloneOf(i)
		c.Instances[n].Version = 0
	}
	return c
}
