package soak

import (
	"fmt"
	"math"
	"time"
)

// Sample is what a process holds at a moment. Start is when the process began,
// in seconds since 1970: it tells one process from the next.
type Sample struct {
	At    time.Duration // since the start of the run
	Start float64
	// Goroutines, open files and resident bytes.
	Goroutines, Files, Resident float64
	// Work is the requests in hand, each of which takes a few goroutines.
	Work float64
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
// mean of the work: y = a + b*t + c*work. Where work does not vary, or only as time
// does, so that nobody can tell them apart, it is y = a + b*t.
func trend(samples []Sample, of func(Sample) float64) (from, to float64) {
	n := float64(len(samples))
	var meanX, meanY, meanW float64
	for _, s := range samples {
		meanX += s.At.Seconds() / n
		meanY += of(s) / n
		meanW += s.Work / n
	}
	var xx, xy, xw, ww, wy float64
	for _, s := range samples {
		dx, dy, dw := s.At.Seconds()-meanX, of(s)-meanY, s.Work-meanW
		xx, xy, xw, ww, wy = xx+dx*dx, xy+dx*dy, xw+dx*dw, ww+dw*dw, wy+dw*dy
	}
	slope := 0.0
	switch det := xx*ww - xw*xw; {
	case det > 1e-6*xx*ww:
		slope = (xy*ww - wy*xw) / det
	case xx > 0:
		slope = xy / xx
	}
	at := func(s Sample) float64 { return math.Max(0, meanY+slope*(s.At.Seconds()-meanX)) }
	return at(samples[0]), at(samples[len(samples)-1])
}
