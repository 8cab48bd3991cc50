package claim

import (
	"cmp"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"skipper/controller/pool"
)

// Spread says how replicas keep out of each other's way: each pod has a
// favourite replica, and each replica takes its own favourites first.
type Spread struct {
	// Self is this replica's identity, for example its pod IP.
	Self string
	// Replicas are all replicas' identities; with or without Self. Empty: no
	// other is known, and only the order of pods differs between replicas.
	Replicas []string
}

// Ranking is what a pool has to offer.
type Ranking struct {
	// Best are the usable pods, the one to take first in front; at most as many
	// as were asked for. Shared: read only.
	Best []*pool.Pod
	// Usable is the number of all usable pods, Total of all unclaimed ones.
	Usable, Total int
	// Why is one example of why a pod is not usable, with its name; empty where
	// all are.
	Why string
}

// Question is what Rank is asked.
type Question struct {
	// Pods are the pool's unclaimed pods, in any order.
	Pods []*pool.Pod
	// ReplicaSets of the pool, as pool.View.ReplicaSets gives them.
	ReplicaSets []pool.ReplicaSet
	Spread      Spread
	// Allowed may refuse a usable pod with a reason; nil allows all.
	Allowed func(*pool.Pod) (bool, string)
	// Now is the time of the question, for telling which pods are fresh; zero:
	// all are, and none is put back for it.
	Now time.Time
	// Limit is how many pods are wanted. Finding few of many is much cheaper
	// than sorting all.
	Limit int
}

// Rank decides which pods may be claimed, and in which order: those of the
// newest active ReplicaSet first, then of other active ones, then the rest;
// within each, fresh pods last, and otherwise spread between replicas.
func Rank(q Question) Ranking {
	generations := generationsOf(q.ReplicaSets)
	out := Ranking{Total: len(q.Pods)}
	var best []rankedPod
	example := ""
	for _, p := range q.Pods {
		if why := q.objection(p); why != "" {
			// The example must not depend on the order of pods.
			if example == "" || p.Name < example {
				example, out.Why = p.Name, "pod "+p.Name+": "+why
			}
			continue
		}
		out.Usable++
		place, order := q.Spread.place(p.UID)
		best = insert(best, rankedPod{p, generations.of(p), q.fresh(p), place, order}, q.Limit)
	}
	for _, r := range best {
		out.Best = append(out.Best, r.pod)
	}
	return out
}

// freshFor is how long after its creation a pod counts as fresh: a busy Envoy
// may not know it yet, and a request that is sent there would find no host.
const freshFor = 3 * time.Second

// fresh is 1 for fresh pods and 0 for others.
func (q Question) fresh(p *pool.Pod) int {
	if q.Now.Sub(p.CreatedAt) < freshFor {
		return 1
	}
	return 0
}

func (q Question) objection(p *pool.Pod) string {
	if why := Unusable(p); why != "" {
		return why
	}
	if q.Allowed == nil {
		return ""
	}
	if ok, why := q.Allowed(p); !ok {
		return why
	}
	return ""
}

// insert keeps the limit best pods, in order.
func insert(best []rankedPod, r rankedPod, limit int) []rankedPod {
	if len(best) >= limit && (limit == 0 || compareRanked(r, best[limit-1]) >= 0) {
		return best
	}
	at, _ := slices.BinarySearchFunc(best, r, compareRanked)
	best = slices.Insert(best, at, r)
	return best[:min(len(best), limit)]
}

// Unusable says why a pod cannot be claimed; empty where it can.
func Unusable(p *pool.Pod) string {
	switch {
	case p.State() != pool.Unassigned:
		return "it is " + p.State().String()
	case p.HostNetwork:
		return "it uses the host's network, which no claimed pod may: remove hostNetwork from the pod template"
	case p.Port == 0 || p.Protocol == "" || p.Spoiled:
		return p.Problem
	case !p.OwnedByReplicaSet:
		return "no ReplicaSet owns it: make function pods with a Deployment"
	case p.IP == "":
		return "it has no address yet"
	case !p.Ready:
		return "it is not ready yet"
	}
	return ""
}

type rankedPod struct {
	pod        *pool.Pod
	generation int
	fresh      int
	place      int
	order      uint64
}

func compareRanked(a, b rankedPod) int {
	return cmp.Or(
		cmp.Compare(a.generation, b.generation),
		cmp.Compare(a.fresh, b.fresh),
		cmp.Compare(a.place, b.place),
		cmp.Compare(a.order, b.order),
		cmp.Compare(a.pod.UID, b.pod.UID),
	)
}

// generations is the place of each active ReplicaSet, 0 the newest.
type generations map[string]int

func generationsOf(replicaSets []pool.ReplicaSet) generations {
	g := generations{}
	for i, r := range replicaSets {
		if r.Active() {
			g[r.Name] = i
		}
	}
	return g
}

func (g generations) of(p *pool.Pod) int {
	if i, ok := g[p.ReplicaSet]; ok {
		return i
	}
	return len(g)
}

// place is 0 for this replica's favourites (rendezvous hashing) and 1 for those
// of others, with the order among pods of one place: of its favourites each
// replica takes those of the lowest hash first, of others' those of the
// highest, which they would take last.
func (s Spread) place(uid string) (place int, order uint64) {
	own := hash(s.Self, uid)
	lowest := own
	for _, r := range s.Replicas {
		lowest = min(lowest, hash(r, uid))
	}
	if lowest < own {
		return 1, ^lowest
	}
	return 0, own
}

func hash(replica, uid string) uint64 {
	var buf [96]byte // an IPv6 address and a UID fit without allocating
	b := append(append(append(buf[:0], replica...), 0), uid...)
	return xxhash.Sum64(b)
}
