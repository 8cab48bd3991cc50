package supervise

import (
	"fmt"
	"time"

	"skipper/controller/claim"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
)

// stale is an instance that should make way for another, and why.
type stale struct {
	pod pool.Pod
	why string
}

// replacement of a stale instance, from before a pod is reserved for it until
// the stale one drains.
type replacement struct {
	why   string
	there bool // only the drain is left
}

// staleOf are the stale ones of the instances, in their order. Sets are the
// pool's ReplicaSets; inForce is the configuration in force, nil if none is known.
// An instance that has not accepted its assignment is left to do so, or to be
// found stuck.
func staleOf(instances []pool.Pod, sets []pool.ReplicaSet, inForce *skipperpb.Function, now time.Time) []stale {
	var out []stale
	for _, p := range instances {
		if p.State() != pool.Ready {
			continue
		}
		if why := staleness(p, sets, inForce, now); why != "" {
			out = append(out, stale{p, why})
		}
	}
	return out
}

// unseenFor is how long after the claim a ReplicaSet that is not known may still
// be a new one: pods and ReplicaSets are watched apart, and one may lag.
const unseenFor = time.Minute

// staleness says why the instance is stale; empty: it is not. Where no
// ReplicaSet makes pods there is nothing better to be had.
func staleness(p pool.Pod, sets []pool.ReplicaSet, inForce *skipperpb.Function, now time.Time) string {
	if inForce != nil && p.Function.GetMetadata() != inForce.GetMetadata() {
		return "its metadata is not that of the configuration in force"
	}
	if len(sets) == 0 || !sets[0].Active() || p.ReplicaSet == "" {
		return ""
	}
	for _, r := range sets {
		switch {
		case r.Name != p.ReplicaSet:
		case r.Active():
			return ""
		default:
			return fmt.Sprintf("its ReplicaSet %s was scaled to zero, %s is active", r.Name, sets[0].Name)
		}
	}
	if now.Sub(p.AssignedAt) < unseenFor {
		return ""
	}
	return fmt.Sprintf("its ReplicaSet %s is gone, %s is active", p.ReplicaSet, sets[0].Name)
}

// misnamed are the instances whose annotation says another scale than the
// configuration in force, and the same metadata.
func misnamed(instances []pool.Pod, inForce *skipperpb.Function) []pool.Pod {
	if inForce == nil {
		return nil
	}
	var out []pool.Pod
	for _, p := range instances {
		f := p.Function
		if p.State() == pool.Ready && f.GetMetadata() == inForce.GetMetadata() && !sameScale(f.GetScale(), inForce.GetScale()) {
			out = append(out, p)
		}
	}
	return out
}

// claimable counts the pods that can be claimed now.
func claimable(unassigned []*pool.Pod) int {
	n := 0
	for _, p := range unassigned {
		if claim.Unusable(p) == "" {
			n++
		}
	}
	return n
}

// spares counts the pods of a pool that could replace an instance now: they can
// be claimed, and an active ReplicaSet made them.
func spares(unassigned []*pool.Pod, sets []pool.ReplicaSet) int {
	active := make(map[string]bool, len(sets))
	for _, r := range sets {
		active[r.Name] = r.Active()
	}
	n := 0
	for _, p := range unassigned {
		if active[p.ReplicaSet] && claim.Unusable(p) == "" {
			n++
		}
	}
	return n
}

// room is what bounds the replacements that a function may begin.
type room struct {
	stale   int // instances to be replaced
	present int // all that do not drain, those under replacement among them
	growing int // assignments under way, replacements among them
	most    int // instances that there may be while one is replaced
	desired int // by the decision
	counted int // instances by which the decision went
	coming  int // replacements that are not there yet, whose stale instances still serve
	slots   int // replacements that this controller may still begin
	spares  int // pods to be had
}

// begin is how many replacements to begin: none unless the number is right,
// because growth comes first, and never so many that all together are more than
// the most.
func (r room) begin() int {
	if r.desired < r.counted || r.desired > r.counted+r.coming {
		return 0
	}
	return max(0, min(r.stale, r.most-r.present-r.growing, r.slots, r.spares))
}
