package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"skipper/test/bench/internal/report"
)

const fleetIntro = `The controller's program beside a stub API server (` + "`test/bench/internal/apistub`" + `, over TLS, with pod metrics), whose pods are
ready, in ten pools, and of 3.5 kB each as protobuf. First all of them wait; then some are the instances of functions, one of each, and
ten stand-ins for extproc are subscribed to every function and name each in a heartbeat every 5 s. No Envoy is connected, nothing is
claimed or deleted meanwhile, and there is no GOMEMLIMIT. The live heap is what a garbage collection leaves; Go lets as much again come before the next one.

`

// fleetTable puts what was measured beside the aims.
func fleetTable(o options, r fleetResult) string {
	t := report.Table{Header: []string{"what", "measured", "aim"}}
	t.Add(fmt.Sprintf("resident memory at most, from the start on, %d functions and %d pods", o.fleetFunctions, o.fleetPods), megabytes(r.full.peak), "600 MB")
	t.Add("resident memory, steady", megabytes(r.full.resident), "600 MB")
	t.Add("of which heap in use, live heap", megabytes(r.full.inUse)+", "+megabytes(r.full.live), "")
	t.Add(fmt.Sprintf("the same with all %d pods waiting: at most, steady, live heap", o.fleetPods), megabytes(r.warm.peak)+", "+megabytes(r.warm.resident)+", "+megabytes(r.warm.live), "")
	t.Add("live heap per function beyond that, the larger objects of claimed pods included", fmt.Sprintf("%.1f kB", (r.full.live-r.warm.live)/1000/float64(o.fleetFunctions)), "4 kB")
	t.Add("CPU, steady", fmt.Sprintf("%.0f %% of one core", 100*r.cores), "25 %")
	t.Add("start until ready, without functions and with them", fmt.Sprintf("%.1f s, %.1f s", r.ready[0].Seconds(), r.ready[1].Seconds()), "")
	for _, name := range slices.Sorted(maps.Keys(r.converges)) {
		t.Add("one converge among 10,000 functions (`BenchmarkConverge`): "+strings.ReplaceAll(name, "_", " "), fmt.Sprintf("%.1f us", r.converges[name]/1000), "20 us")
	}
	ms := make([]float64, len(r.calls))
	for i, s := range r.calls {
		ms[i] = 1000 * s
	}
	t.Add("GetClusterState of everything: ms, size", report.SpreadOf(ms).Format(0)+", "+megabytes(float64(r.bytes)), "")
	t.Add("resident memory at most, after that", megabytes(r.afterState.peak), "")
	t.Add(fmt.Sprintf("one of two replicas killed, until it has left the other's ring (its pod is not ready after %.0f s)", fleetNotice.Seconds()), fmt.Sprintf("%.1f s", r.takeover.left.Seconds()), "")
	t.Add(fmt.Sprintf("until its %d functions were converged by the other", r.takeover.functions), fmt.Sprintf("%.1f s", r.takeover.all.Seconds()), "18 s: Ready timeout, a scale interval (give or take a tenth)")
	return t.Markdown()
}

func megabytes(bytes float64) string { return fmt.Sprintf("%.0f MB", bytes/1e6) }
