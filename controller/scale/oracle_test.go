package scale

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	skipperpb "skipper/proto"
)

// decider is Decide, or something that claims to be as good.
type decider func(Policy, Input, time.Time) Decision

// naive says the rules of the contract again: it counts up and down one by
// one, and has every tolerance of the tests in thousandths.
type naive struct {
	policy     Policy
	in         Input
	thousandth int
}

// desired is what Decide should say, and what the metrics want before the bounds.
func (n naive) desired() (desired, wants int) {
	in, p := n.in, n.policy
	if in.Oneshot {
		return in.Current, in.Current
	}
	want := 0
	if used := !in.LastUsed.IsZero() && !in.LastUsed.Add(p.HeartbeatTimeout).Before(now); used {
		wants = n.wants()
		want = wants
		for want < int(in.Scale.GetMinInstances()) {
			want++
		}
		for want > int(in.Scale.GetMaxInstances()) {
			want--
		}
		for want < in.WindowMax && want < in.Current {
			want++
		}
	}
	young := p.StartedAt.Add(p.HeartbeatTimeout).After(now) || p.StartedAt.Add(p.Stabilization).After(now)
	if young && want < in.Current {
		want = in.Current
	}
	return want, wants
}

func (n naive) wants() int {
	wants := []int{1}
	if target := uint64(n.in.Scale.GetTargetInFlightRequests()); target > 0 {
		wants = append(wants, share(n.in.InFlight, target))
	}
	if target := n.in.Scale.GetTargetCpuUsageMilli(); target > 0 && n.in.Metered {
		var grown []Sample
		for _, s := range n.in.Samples {
			if !s.ReadyAt.IsZero() && !s.ReadyAt.Add(n.policy.InitialReadiness).After(now) {
				grown = append(grown, s)
			}
		}
		wants = append(wants, n.resource(grown, target, func(s Sample) uint32 { return s.CPUMilli }))
	}
	if target := n.in.Scale.GetTargetMemoryUsageMib(); target > 0 && n.in.Metered {
		wants = append(wants, n.resource(n.in.Samples, target, func(s Sample) uint32 { return s.MemoryMiB }))
	}
	most := 0
	for _, w := range wants {
		if w > most {
			most = w
		}
	}
	return most
}

// share is how many instances can carry total with target each.
func share(total, target uint64) int {
	want := 0
	for uint64(want)*target < total {
		want++
	}
	return want
}

// resource wants for one resource, told instance by instance.
func (n naive) resource(samples []Sample, target uint32, of func(Sample) uint32) int {
	var known []uint32
	for _, s := range samples {
		if s.Measured {
			known = append(known, of(s))
		}
	}
	if len(known) == 0 {
		return n.in.Current
	}
	first := n.says(known, target)
	for len(known) < len(samples) {
		if first == "down" {
			known = append(known, target)
		} else {
			known = append(known, 0)
		}
	}
	if first == "stay" || n.says(known, target) != first {
		return n.in.Current
	}
	want := share(total(known), uint64(target))
	if first == "up" && want < n.in.Current || first == "down" && want > n.in.Current {
		return n.in.Current
	}
	return want
}

func total(values []uint32) uint64 {
	var sum uint64
	for _, v := range values {
		sum += uint64(v)
	}
	return sum
}

func (n naive) says(values []uint32, target uint32) string {
	full := len(values) * int(target)
	sum := int(total(values))
	switch {
	case sum*1000 > full*(1000+n.thousandth):
		return "up"
	case sum*1000 < full*(1000-n.thousandth):
		return "down"
	}
	return "stay"
}

// random is a case from a range in which rules meet often.
func random(rnd *rand.Rand) naive {
	lo := rnd.Uint32N(4)
	n := naive{thousandth: []int{0, 100, 200, 333}[rnd.IntN(4)]}
	n.in = Input{
		Scale: &skipperpb.Scale{
			MinInstances: lo, MaxInstances: 1 + lo + rnd.Uint32N(6), TargetInFlightRequests: rnd.Uint32N(4),
			TargetCpuUsageMilli: 50 * rnd.Uint32N(3), TargetMemoryUsageMib: 10 * rnd.Uint32N(3),
		},
		Oneshot: rnd.IntN(20) == 0, Metered: rnd.IntN(8) > 0,
		Current: rnd.IntN(8), InFlight: uint64(rnd.IntN(30)), WindowMax: rnd.IntN(12),
	}
	for range n.in.Current + rnd.IntN(2) {
		s := Sample{Measured: rnd.IntN(4) > 0, CPUMilli: 5 * rnd.Uint32N(32), MemoryMiB: rnd.Uint32N(32)}
		if rnd.IntN(6) > 0 {
			s.ReadyAt = ago(time.Duration(rnd.IntN(6)) * time.Second)
		}
		n.in.Samples = append(n.in.Samples, s)
	}
	if rnd.IntN(4) > 0 {
		n.in.LastUsed = ago(time.Duration(rnd.IntN(5)) * time.Second)
	}
	n.policy = Policy{
		HeartbeatTimeout: time.Duration(1+rnd.IntN(3)) * time.Second,
		Stabilization:    time.Duration(rnd.IntN(3)) * time.Second,
		StartedAt:        ago(time.Duration(rnd.IntN(8)) * time.Second),
		Tolerance:        float64(n.thousandth) / 1000,
		InitialReadiness: time.Duration(rnd.IntN(4)) * time.Second,
	}
	return n
}

// agrees compares a decider with the naive rules on n random cases.
func agrees(decide decider, n int) error {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range n {
		c := random(rnd)
		desired, wants := c.desired()
		if got := decide(c.policy, c.in, now); got.Desired != desired || got.Unclamped != wants {
			return fmt.Errorf("%+v with %+v: %+v, want %d (unclamped %d)", c.in, c.policy, got, desired, wants)
		}
	}
	return nil
}

func TestMatchesNaiveDecision(t *testing.T) {
	if err := agrees(Decide, 100_000); err != nil {
		t.Error(err)
	}
}
