package pool

import (
	"cmp"
	"slices"
)

// Name names a pool.
type Name struct{ Namespace, Deployment string }

// Pools are the pools that have a ReplicaSet or an unclaimed pod, sorted.
func (v *View) Pools() []Name {
	v.mu.Lock()
	out := make([]Name, 0, len(v.replicaSets))
	for k := range v.replicaSets {
		out = append(out, Name{k.namespace, k.deployment})
	}
	for k := range v.unassigned {
		if _, ok := v.replicaSets[k]; !ok {
			out = append(out, Name{k.namespace, k.deployment})
		}
	}
	v.mu.Unlock()
	slices.SortFunc(out, func(a, b Name) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Deployment, b.Deployment))
	})
	return out
}
