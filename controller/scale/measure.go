package scale

import (
	"fmt"
	"math"
	"time"

	skipperpb "skipper/proto"
)

// measure is what one metric asks for; want 0 means that it has no say.
type measure struct {
	want   int
	reason skipperpb.ScaleReason
	// What it was computed from; put into words only for the metric that decides.
	tally            tally
	inFlight, target uint64
	note             string
}

// why is the measure in words.
func (m measure) why() string {
	switch {
	case m.reason == skipperpb.ScaleReason_SCALE_REASON_IN_FLIGHT_REQUESTS:
		return fmt.Sprintf("%d requests in flight, target %d each", m.inFlight, m.target)
	case m.tally.name == "":
		return m.note
	case m.note != "":
		return m.tally.String() + ": " + m.note
	}
	return m.tally.String()
}

// most bounds what a metric can ask for, whatever it measured.
const most = 1 << 30

// inFlight wants ceil(total / target) instances: 101 requests at a target of
// 50 want 3.
func inFlight(in Input) measure {
	target := uint64(in.Scale.GetTargetInFlightRequests())
	if target == 0 {
		return measure{}
	}
	return measure{
		want:   ceil(in.InFlight, target),
		reason: skipperpb.ScaleReason_SCALE_REASON_IN_FLIGHT_REQUESTS, inFlight: in.InFlight, target: target,
	}
}

// ceil is the number of instances that share total at no more than target each.
func ceil(total, target uint64) int {
	n := total / target
	if total%target > 0 {
		n++
	}
	return int(min(n, most))
}

// cpu ignores instances that have not been ready for the initial delay: what a
// pod burns while it starts says nothing about its share of the load.
func cpu(p Policy, in Input, now time.Time) measure {
	if in.Scale.GetTargetCpuUsageMilli() == 0 || !in.Metered {
		return measure{}
	}
	t := tally{name: "CPU", unit: "m", target: uint64(in.Scale.GetTargetCpuUsageMilli())}
	for _, s := range in.Samples {
		if s.ReadyAt.IsZero() || now.Sub(s.ReadyAt) < p.InitialReadiness {
			t.ignored++
			continue
		}
		t.add(s.Measured, s.CPUMilli)
	}
	return t.measure(skipperpb.ScaleReason_SCALE_REASON_CPU, in.Current, p.Tolerance)
}

func memory(p Policy, in Input) measure {
	if in.Scale.GetTargetMemoryUsageMib() == 0 || !in.Metered {
		return measure{}
	}
	t := tally{name: "memory", unit: "MiB", target: uint64(in.Scale.GetTargetMemoryUsageMib())}
	for _, s := range in.Samples {
		t.add(s.Measured, s.MemoryMiB)
	}
	return t.measure(skipperpb.ScaleReason_SCALE_REASON_MEMORY, in.Current, p.Tolerance)
}

// tally is one resource summed up over the instances.
type tally struct {
	name, unit string
	target     uint64 // per instance
	sum        uint64
	counted    uint64 // instances in sum
	missing    uint64 // instances that the metrics API does not know
	ignored    uint64
}

func (t *tally) add(measured bool, value uint32) {
	if !measured {
		t.missing++
		return
	}
	t.counted++
	t.sum += uint64(value)
}

// measure wants ceil(n x average / target), which is ceil(sum / target). What
// is not known is taken to speak against a change: as 100 % of the target where
// less is asked for, as 0 % where more is. Where that turns the direction
// round, where the target is met within the tolerance, and where nothing is
// known at all, the metric asks for what there is.
func (t tally) measure(reason skipperpb.ScaleReason, current int, tolerance float64) measure {
	m := measure{want: current, reason: reason, tally: t}
	if t.counted == 0 {
		m.note = "nothing is known, no change"
		return m
	}
	direction := t.direction(tolerance)
	filled := t.fill(direction)
	want := ceil(filled.sum, t.target)
	switch {
	case direction == 0:
		m.note = "within tolerance, no change"
	case filled.direction(tolerance) != direction, (want-current)*direction < 0:
		m.note = "with what is not known the direction is not certain, no change"
	default:
		m.want = want
	}
	return m
}

// direction is 1 where more instances are needed, -1 where fewer would do, and
// 0 where the target is met within the tolerance.
func (t tally) direction(tolerance float64) int {
	full := float64(t.counted * t.target)
	off := float64(t.sum) - full
	const rounding = 1e-9 // 110 % is within a tolerance of 0.1, whatever floats make of it
	switch {
	case math.Abs(off) <= full*(tolerance+rounding):
		return 0
	case off > 0:
		return 1
	}
	return -1
}

// fill counts the missing ones in.
func (t tally) fill(direction int) tally {
	if direction < 0 {
		t.sum += t.missing * t.target
	}
	t.counted += t.missing
	t.missing = 0
	return t
}

// String is for reasons.
func (t tally) String() string {
	s := fmt.Sprintf("%s %d%s in all over %d instances, target %d%s each", t.name, t.sum, t.unit, t.counted, t.target, t.unit)
	if t.missing > 0 {
		s += fmt.Sprintf(", %d without metrics", t.missing)
	}
	if t.ignored > 0 {
		s += fmt.Sprintf(", %d not ready for long enough", t.ignored)
	}
	return s
}
