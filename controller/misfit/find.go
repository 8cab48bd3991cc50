package misfit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"skipper/controller/heartbeat"
	"skipper/controller/pool"
)

const (
	// releaseAfter is how long a ReplicaSet may keep a claimed pod. It lets go
	// within a second, but for a controller manager that restarts.
	releaseAfter = time.Minute
	// speaksWithin is how lately a router must have been heard to count as alive:
	// three heartbeat intervals.
	speaksWithin = 15 * time.Second
)

// held is a claimed pod that is its ReplicaSet's.
type held struct {
	pod   pool.Pod
	since time.Time // when this replica first saw it so
}

// keepers are the pools whose ReplicaSets keep claimed pods, each with what to
// do about it.
func keepers(all map[string]held, now time.Time) map[pool.Name]string {
	first := map[pool.Name]pool.Pod{}
	for _, h := range all {
		name := pool.Name{Namespace: h.pod.Namespace, Deployment: h.pod.Deployment}
		known, ok := first[name]
		if now.Sub(h.since) >= releaseAfter && (!ok || h.pod.Name < known.Name) {
			first[name] = h.pod
		}
	}
	out := make(map[pool.Name]string, len(first))
	for name, p := range first {
		out[name] = fmt.Sprintf("pod %s is assigned but still belongs to ReplicaSet %s, which makes no pod in its place, so the pool runs dry: "+
			"the Deployment's spec.selector needs matchExpressions {key: %s, operator: DoesNotExist} (a selector cannot be changed: create the Deployment anew); "+
			"if it has that, see whether the cluster's controller manager runs", p.Name, p.ReplicaSet, pool.LabelTenant)
	}
	return out
}

// isHeld says that the pod is claimed and its ReplicaSet's.
func isHeld(p *pool.Pod) bool {
	return p != nil && p.Function != nil && p.OwnedByReplicaSet && p.State() < pool.Terminating
}

// twins are the node ids that several gateways use, by the addresses of their
// routers, sorted.
func twins(routers []heartbeat.Router, now time.Time) map[string][]string {
	ips := map[string][]string{}
	for _, r := range routers {
		if r.Node != "" && r.IP != "" && now.Sub(r.Heard) <= speaksWithin && !slices.Contains(ips[r.Node], r.IP) {
			ips[r.Node] = append(ips[r.Node], r.IP)
		}
	}
	for node, list := range ips {
		slices.Sort(list)
		if len(list) < 2 {
			delete(ips, node)
		}
	}
	return ips
}

// confirmed are the twins that were there at the look before, too: a gateway
// that has just taken another's place is none.
func confirmed(before, now map[string][]string) map[string]string {
	out := map[string]string{}
	for node, ips := range now {
		both := slices.DeleteFunc(slices.Clone(ips), func(ip string) bool { return !slices.Contains(before[node], ip) })
		if len(both) > 1 {
			out[node] = fmt.Sprintf("gateways at %s have the same Envoy node id %q, so their loads are mixed up: "+
				"give each Envoy a --service-node of its own, for example its pod's name", strings.Join(both, " and "), node)
		}
	}
	return out
}
