package scale

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	skipperpb "skipper/proto"
)

// policyWrong decides right with a wrong policy.
func policyWrong(change func(*Policy)) decider {
	return func(p Policy, in Input, now time.Time) Decision {
		change(&p)
		return Decide(p, in, now)
	}
}

// inputWrong decides right with a wrong picture of the function.
func inputWrong(change func(*Input)) decider {
	return func(p Policy, in Input, now time.Time) Decision {
		in.Scale = proto.CloneOf(in.Scale)
		in.Samples = append([]Sample(nil), in.Samples...)
		change(&in)
		return Decide(p, in, now)
	}
}

// outputWrong spoils what was decided.
func outputWrong(change func(Input, *Decision)) decider {
	return func(p Policy, in Input, now time.Time) Decision {
		d := Decide(p, in, now)
		change(in, &d)
		return d
	}
}

func eachSample(change func(*Input, *Sample)) decider {
	return inputWrong(func(in *Input) {
		for i := range in.Samples {
			change(in, &in.Samples[i])
		}
	})
}

// least takes the minimum over the metrics instead of the maximum.
func least(p Policy, in Input, now time.Time) Decision {
	best := Decide(p, in, now)
	s := in.Scale
	for _, only := range []*skipperpb.Scale{
		{TargetInFlightRequests: s.GetTargetInFlightRequests()},
		{TargetCpuUsageMilli: s.GetTargetCpuUsageMilli()},
		{TargetMemoryUsageMib: s.GetTargetMemoryUsageMib()},
	} {
		if proto.Size(only) == 0 {
			continue // not scaled on this
		}
		only.MinInstances, only.MaxInstances = s.GetMinInstances(), s.GetMaxInstances()
		one := in
		one.Scale = only
		if d := Decide(p, one, now); d.Unclamped < best.Unclamped {
			best = d
		}
	}
	return best
}

// mutants are wrong in one rule each.
func mutants() map[string]decider {
	return map[string]decider{
		"no tolerance":                       policyWrong(func(p *Policy) { p.Tolerance = 0 }),
		"double tolerance":                   policyWrong(func(p *Policy) { p.Tolerance *= 2 }),
		"no readiness delay":                 policyWrong(func(p *Policy) { p.InitialReadiness = 0 }),
		"no start-up protection":             policyWrong(func(p *Policy) { p.StartedAt = time.Time{} }),
		"protection by the heartbeat alone":  policyWrong(func(p *Policy) { p.Stabilization = 0 }),
		"heartbeat timeout half as long":     policyWrong(func(p *Policy) { p.HeartbeatTimeout /= 2 }),
		"in flight rounded down":             inputWrong(func(in *Input) { in.InFlight -= in.InFlight % uint64(max(1, in.Scale.GetTargetInFlightRequests())) }),
		"no stabilisation window":            inputWrong(func(in *Input) { in.WindowMax = 0 }),
		"maximum ignored":                    inputWrong(func(in *Input) { in.Scale.MaxInstances = 1 << 20 }),
		"minimum ignored":                    inputWrong(func(in *Input) { in.Scale.MinInstances = 0 }),
		"oneshot scaled like any other":      inputWrong(func(in *Input) { in.Oneshot = false }),
		"CPU without a metrics API":          inputWrong(func(in *Input) { in.Metered = true }),
		"CPU ignored":                        inputWrong(func(in *Input) { in.Scale.TargetCpuUsageMilli = 0 }),
		"memory ignored":                     inputWrong(func(in *Input) { in.Scale.TargetMemoryUsageMib = 0 }),
		"missing metrics are zero":           eachSample(zeroIfMissing),
		"missing metrics are the target":     eachSample(targetIfMissing),
		"instances without metrics left out": inputWrong(leaveOutMissing),
		"minimum over the metrics":           least,
		"unclamped value lost":               outputWrong(func(_ Input, d *Decision) { d.Unclamped = d.Recommended }),
		"minimum holds an unused function":   outputWrong(minimumWhenUnused),
		"window lifts above the count":       outputWrong(func(in Input, d *Decision) { d.Desired = max(d.Desired, in.WindowMax) }),
		"only one step at a time":            outputWrong(func(in Input, d *Decision) { d.Desired = max(min(d.Desired, in.Current+1), in.Current-1) }),
	}
}

func zeroIfMissing(_ *Input, s *Sample) {
	if !s.Measured {
		*s = Sample{ReadyAt: s.ReadyAt, Measured: true}
	}
}

func targetIfMissing(in *Input, s *Sample) {
	if !s.Measured {
		*s = Sample{ReadyAt: s.ReadyAt, Measured: true, CPUMilli: in.Scale.GetTargetCpuUsageMilli(), MemoryMiB: in.Scale.GetTargetMemoryUsageMib()}
	}
}

func leaveOutMissing(in *Input) {
	var known []Sample
	for _, s := range in.Samples {
		if s.Measured {
			known = append(known, s)
		}
	}
	in.Samples = known
}

func minimumWhenUnused(in Input, d *Decision) {
	d.Desired = max(d.Desired, int(in.Scale.GetMinInstances()))
}

func TestBrokenVariantsAreCaught(t *testing.T) {
	rows := examples(t)
	for name, broken := range mutants() {
		if agrees(broken, 5_000) == nil {
			t.Errorf("%s: the random cases do not notice", name)
		}
		caught := 0
		for _, e := range rows {
			if e.holds(broken) != nil {
				caught++
			}
		}
		t.Logf("%s: %d of %d examples notice", name, caught, len(rows))
	}
}
