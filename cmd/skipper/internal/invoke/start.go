package invoke

import (
	"slices"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// Start is whether a request had to wait for an instance.
type Start struct {
	// Kind is cold, warm or unknown.
	Kind string `json:"kind"`
	// Instance that most likely answered; empty: it might be several.
	Instance string `json:"instance"`
	Why      string `json:"why"`
}

// The kinds.
const (
	Cold    = "cold"
	Warm    = "warm"
	Unknown = "unknown"
)

// JudgeStart compares the function's pods before the request and after it.
func JudgeStart(k fn.Key, before, after []pool.Pod) Start {
	before, after = of(k, before), of(k, after)
	routable := slices.DeleteFunc(slices.Clone(before), func(p pool.Pod) bool { return !p.Routable() })
	if len(routable) > 0 && !k.Oneshot {
		return Start{Warm, only(routable), "an instance was ready before"}
	}
	fresh := slices.DeleteFunc(after, func(p pool.Pod) bool {
		return slices.ContainsFunc(before, func(q pool.Pod) bool { return q.UID == p.UID })
	})
	switch {
	case len(fresh) > 0:
		return Start{Cold, only(fresh), "an instance was assigned meanwhile"}
	case k.Oneshot:
		return Start{Cold, "", "each request of a oneshot has a fresh pod"}
	case len(before) > 0:
		return Start{Cold, only(before), "an instance was on its way before"}
	}
	return Start{Unknown, "", "no instance was seen, before or after"}
}

func of(k fn.Key, pods []pool.Pod) []pool.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p pool.Pod) bool { return p.Key != k })
}

func only(pods []pool.Pod) string {
	if len(pods) == 1 {
		return pods[0].Name
	}
	return ""
}

// InForce is the function's configuration as its newest instance has it; nil:
// it has none. A request with another one would have instances replaced.
func InForce(k fn.Key, pods []pool.Pod) *skipperpb.Function {
	var newest pool.Pod
	for _, p := range of(k, pods) {
		if newest.Function == nil || p.AssignedAt.After(newest.AssignedAt) {
			newest = p
		}
	}
	return newest.Function
}
