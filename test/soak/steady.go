package soak

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Sample is what a process holds at a moment. Start is when the process began,
// in seconds since 1970: it tells one process from the next.
type Sample struct {
	At    time.Duration // since the start of the run
	Start float64
	// Goroutines, open files and resident bytes.
	Goroutines, Files, Resident float64
	// Work is the requests in hand by kind, each of which takes a few goroutines: one
	// that is served takes fewer than one that waits. All samples have the same kinds.
	Work []float64
}

// Steady says what counts as flat.
type Steady struct {
	// WarmUp is how long a process is not judged after its first sample.
	WarmUp time.Duration
	// Least is how long it must have been watched after that to be judged at all.
	Least time.Duration
	// Goroutines, Files and Resident are how much each may grow by, over the
	// time that was watched, by the line through its samples, work being equal: an
	// amount, and a share of what it was at the beginning of the line; the larger
	// one counts.
	Goroutines, Files, Resident Growth
}

// Growth is an allowance.
type Growth struct{ Amount, Share float64 }

// Finding is the judgement on one quantity of one process.
type Finding struct {
	What string
	// From and To are the ends of the line through the samples, over For.
	From, To float64
	For      time.Duration
	Flat     bool
}

func (f Finding) String() string {
	verdict := "flat"
	if !f.Flat {
		verdict = "grows"
	}
	return fmt.Sprintf("%s %s: from %.0f to %.0f in %s", f.What, verdict, f.From, f.To, f.For.Round(time.Second))
}

// Judge says of each process, in the order in which they began, how its
// quantities went. Samples are in the order of their times. A process that was
// watched for too short a time is left out.
func (s Steady) Judge(samples []Sample) []Finding {
	var out []Finding
	for len(samples) > 0 {
		n := 0
		for n < len(samples) && samples[n].Start == samples[0].Start {
			n++
		}
		out = append(out, s.judgeOne(samples[:n])...)
		samples = samples[n:]
	}
	return out
}

// More says which parts have requests in hand, hold more than before, or are not
// there, in the order of their names. Memory does not count: it is given back
// when the collector sees fit.
func (s Steady) More(before, now map[string]Sample) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		b, n := before[name], now[name]
		switch {
		case n.Start == 0:
			out = append(out, name+" does not answer")
		case slices.ContainsFunc(n.Work, func(w float64) bool { return w > 0 }):
			out = append(out, fmt.Sprintf("%s has requests in hand: %v", name, n.Work))
		case n.Goroutines > b.Goroutines+max(s.Goroutines.Amount, s.Goroutines.Share*b.Goroutines):
			out = append(out, fmt.Sprintf("%s has %.0f goroutines, %.0f before", name, n.Goroutines, b.Goroutines))
		case n.Files > b.Files+max(s.Files.Amount, s.Files.Share*b.Files):
			out = append(out, fmt.Sprintf("%s has %.0f open files, %.0f before", name, n.Files, b.Files))
		}
	}
	return out
}

// judgeOne is about one process.
func (s Steady) judgeOne(samples []Sample) []Finding {
	begin := samples[0].At + s.WarmUp
	for len(samples) > 0 && samples[0].At < begin {
		samples = samples[1:]
	}
	if len(samples) < 3 || samples[len(samples)-1].At-samples[0].At < s.Least {
		return nil
	}
	var out []Finding
	for _, q := range []struct {
		what  string
		of    func(Sample) float64
		allow Growth
	}{
		{"goroutines", func(x Sample) float64 { return x.Goroutines }, s.Goroutines},
		{"open files", func(x Sample) float64 { return x.Files }, s.Files},
		{"resident bytes", func(x Sample) float64 { return x.Resident }, s.Resident},
	} {
		f := Finding{What: q.what, For: samples[len(samples)-1].At - samples[0].At}
		f.From, f.To = trend(samples, q.of)
		f.Flat = f.To-f.From <= max(q.allow.Amount, q.allow.Share*f.From)
		out = append(out, f)
	}
	return out
}

// trend is the line of least squares through the samples, at its ends, for the
// mean of the work: y = a + b*t + c1*work1 + c2*work2 and so on. Work that does not
// vary, or only as time or other work does, so that nobody can tell them apart, does
// not count.
func trend(samples []Sample, of func(Sample) float64) (from, to float64) {
	y := column(samples, of)
	t := centred(column(samples, func(s Sample) float64 { return s.At.Seconds() }))
	known, works := [][]float64{t}, [][]float64(nil) // each is orthogonal to those before it
	for k := range samples[0].Work {
		w := centred(column(samples, func(s Sample) float64 { return s.Work[k] }))
		if own := without(w, known); dot(own, own) > 1e-6*dot(w, w) {
			known, works = append(known, own), append(works, without(w, works))
		}
	}
	slope := 0.0
	if own := without(t, works); dot(own, own) > 0 {
		slope = dot(own, y) / dot(own, own)
	}
	at := func(i int) float64 { return max(0, mean(y)+slope*t[i]) }
	return at(0), at(len(t) - 1)
}

func column(samples []Sample, of func(Sample) float64) []float64 {
	out := make([]float64, len(samples))
	for i, s := range samples {
		out[i] = of(s)
	}
	return out
}

func mean(v []float64) (m float64) {
	for _, x := range v {
		m += x / float64(len(v))
	}
	return m
}

func centred(v []float64) []float64 {
	m, out := mean(v), slices.Clone(v)
	for i := range out {
		out[i] -= m
	}
	return out
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// without is what is left of v when its parts along others, which are orthogonal
// to each other and not 0, are taken off.
func without(v []float64, others [][]float64) []float64 {
	out := slices.Clone(v)
	for _, o := range others {
		share := dot(v, o) / dot(o, o)
		for i := range out {
			out[i] -= share * o[i]
		}
	}
	return out
}
