package keys

import (
	"crypto/ed25519"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Propagation is how long a changed ConfigMap may take to reach every pod: the
// kubelet's period and its cache, with room.
const Propagation = 2 * time.Minute

// Facts is where a rotation stands.
type Facts struct {
	// Current is the public half of the key that controllers sign with, Next that
	// of the one prepared to follow; nil: none is.
	Current, Next ed25519.PublicKey
	// Published are the public keys that pods of each function namespace have.
	Published map[string][]ed25519.PublicKey
	// PublishedAt is when Next was published, SigningSince when Current began;
	// zero: not known.
	PublishedAt, SigningSince time.Time
	// Controllers are the times at which their pods were made.
	Controllers []time.Time
}

// Step is what comes next.
type Step string

// The steps, in their order.
const (
	// Prepare makes the next key.
	Prepare Step = "prepare"
	// Publish gives pods the public keys that they lack.
	Publish Step = "publish"
	// WaitForPods leaves the kubelets time.
	WaitForPods Step = "wait-for-pods"
	// Switch makes the next key the current one.
	Switch Step = "switch"
	// Restart has controllers read it.
	Restart Step = "restart"
	// WaitForTokens leaves the old key's tokens time to expire.
	WaitForTokens Step = "wait-for-tokens"
	// Retire takes old public keys from pods.
	Retire Step = "retire"
)

// Plan is the next step and why it is that one.
type Plan struct {
	Step Step   `json:"step"`
	Why  string `json:"why"`
	// Until is when a step that waits is over; nil: the step does something.
	Until *time.Time `json:"until,omitempty"`
}

// Next decides. Retire comes retireAfter the switch, if that is known.
func Next(f Facts, now time.Time, retireAfter time.Duration) Plan {
	if missing := lacking(f); len(missing) > 0 {
		return Plan{Step: Publish, Why: "pods in " + strings.Join(missing, ", ") + " do not have all public keys"}
	}
	if f.Next != nil {
		return beforeSwitch(f, now)
	}
	if old := before(f.Controllers, f.SigningSince); old > 0 {
		return Plan{Step: Restart, Why: fmt.Sprintf("%d controllers are older than the key in the Secret, and sign with the one before", old)}
	}
	if !extra(f) {
		return Plan{Step: Prepare, Why: "one key is in use, and none is prepared"}
	}
	if ends := f.SigningSince.Add(retireAfter); !f.SigningSince.IsZero() && now.Before(ends) {
		return Plan{WaitForTokens, "tokens that the old key has signed may be valid still", &ends}
	}
	return Plan{Step: Retire, Why: "pods have public keys that nothing signs with any more"}
}

func beforeSwitch(f Facts, now time.Time) Plan {
	if ends := f.PublishedAt.Add(Propagation); now.Before(ends) {
		return Plan{WaitForPods, "the next public key may not have reached every pod", &ends}
	}
	return Plan{Step: Switch, Why: "every pod has the next public key"}
}

// Wanted are the public keys that pods should have: what is there, with what a
// step needs added, or only what is in use, for Retire.
func Wanted(f Facts, have []ed25519.PublicKey, s Step) []ed25519.PublicKey {
	out := []ed25519.PublicKey{}
	if s != Retire {
		out = slices.Clone(have)
	}
	for _, k := range []ed25519.PublicKey{f.Current, f.Next} {
		if k != nil && !contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

func contains(all []ed25519.PublicKey, k ed25519.PublicKey) bool {
	return slices.ContainsFunc(all, func(o ed25519.PublicKey) bool { return o.Equal(k) })
}

// lacking are the namespaces whose pods lack a key.
func lacking(f Facts) []string {
	var out []string
	for _, ns := range slices.Sorted(maps.Keys(f.Published)) {
		if len(Wanted(f, f.Published[ns], Publish)) > len(f.Published[ns]) {
			out = append(out, ns)
		}
	}
	return out
}

// extra: some pods have a key that is neither current nor next.
func extra(f Facts) bool {
	for _, have := range f.Published {
		if len(Wanted(f, have, Publish)) > len(Wanted(f, have, Retire)) {
			return true
		}
	}
	return false
}

func before(all []time.Time, at time.Time) int {
	n := 0
	for _, t := range all {
		if t.Before(at.Truncate(time.Second)) { // Kubernetes writes seconds
			n++
		}
	}
	return n
}
