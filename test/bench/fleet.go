package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	skipperpb "skipper/proto"
	"skipper/test/bench/internal/proc"
)

const (
	// fleetMinute is how long the processor time is measured.
	fleetMinute = time.Minute
	// fleetNotice is when a kubelet at the latest says that a killed controller
	// is not ready: three failed probes of one second each, the chart's.
	fleetNotice = 3 * time.Second
	fleetCalls  = 5
)

// fleetMemory is what a controller uses, in bytes.
type fleetMemory struct{ peak, resident, inUse, live float64 }

// fleetResult is all that is measured.
type fleetResult struct {
	warm, full fleetMemory // all pods waiting; functions on some
	ready      [2]time.Duration
	cores      float64
	afterState fleetMemory
	calls      []float64 // seconds
	bytes      int
	converges  map[string]float64 // nanoseconds, by benchmark
	takeover   fleetTakeover
}

// fleetTakeover is the end of a replica.
type fleetTakeover struct {
	functions int
	left, all time.Duration // until it has left the other's ring; until every function was converged
}

// measureFleet measures a controller beside pods that all wait, and then beside
// as many of which some are functions' instances.
func measureFleet(ctx context.Context, o options) (_ string, err error) {
	dir, err := os.MkdirTemp("", "skipper-bench-")
	if err != nil {
		return "", err
	}
	binary, err := buildProgram(ctx, dir, "controller")
	if err != nil {
		return "", err
	}
	var r fleetResult
	if r.converges, err = fleetConverges(ctx); err != nil {
		return "", err
	}
	err = fleetWith(fleetWorld{pods: o.fleetPods}, dir, binary, func(f *fleet) error { return r.measureWarm(ctx, f, o.fleetSettle) })
	if err == nil {
		err = fleetWith(fleetWorld{o.fleetPods, o.fleetFunctions}, dir, binary, func(f *fleet) error { return r.measureFull(ctx, f, o.fleetSettle) })
	}
	if err != nil {
		return "", fmt.Errorf("logs in %s: %w", dir, err)
	}
	return fleetTable(o, r), os.RemoveAll(dir)
}

func fleetWith(w fleetWorld, dir, binary string, do func(*fleet) error) error {
	f, err := startFleet(w, dir, binary)
	if f == nil {
		return err
	}
	if err == nil {
		err = do(f)
	}
	return errors.Join(err, f.close())
}

func (r *fleetResult) measureWarm(ctx context.Context, f *fleet, settle time.Duration) error {
	c, err := f.add(ctx)
	if err != nil {
		return err
	}
	r.ready[0] = c.ready
	if err := pauseFor(ctx, settle); err != nil {
		return err
	}
	r.warm, err = c.memory(ctx)
	return err
}

func (r *fleetResult) measureFull(ctx context.Context, f *fleet, settle time.Duration) (err error) {
	c, err := f.add(ctx)
	if err != nil {
		return err
	}
	r.ready[1] = c.ready
	extprocs, err := startStandIns(ctx, f.world, []string{fleetAddr(fleetIP(0)), fleetAddr(fleetIP(1))})
	defer func() { err = errors.Join(err, extprocs.close()) }()
	if err != nil {
		return err
	}
	if err := pauseFor(ctx, settle); err != nil {
		return err
	}
	if r.cores, r.full, err = c.steady(ctx); err != nil {
		return err
	}
	if err := errors.Join(c.isWhole(ctx), extprocs.check()); err != nil {
		return err
	}
	if err := r.askState(ctx, c); err != nil {
		return err
	}
	if r.afterState, err = c.memory(ctx); err != nil {
		return err
	}
	r.takeover, err = f.takeover(ctx)
	return err
}

// memory reads what a controller uses. The live heap is what the newest garbage
// collection left, by the goal that it set: twice that, and the stacks.
func (r *fleetReplica) memory(ctx context.Context) (fleetMemory, error) {
	resident, peak, err := proc.Memory(r.process.PID())
	m := fleetMemory{peak: float64(peak), resident: float64(resident)}
	goal, goalErr := r.gauge(ctx, "go_memstats_next_gc_bytes")
	stacks, stacksErr := r.gauge(ctx, "go_memstats_stack_inuse_bytes")
	inUse, inUseErr := r.gauge(ctx, "go_memstats_heap_inuse_bytes")
	m.inUse, m.live = inUse, (goal-stacks)/2
	return m, errors.Join(err, goalErr, stacksErr, inUseErr)
}

// steady measures for a minute: the cores that are used, and of the memory what
// was least, but the highest resident share.
func (r *fleetReplica) steady(ctx context.Context) (cores float64, least fleetMemory, err error) {
	began, before, err := r.spent()
	if err != nil {
		return 0, least, err
	}
	if least, err = r.memory(ctx); err != nil {
		return 0, least, err
	}
	for time.Since(began) < fleetMinute {
		if err := pauseFor(ctx, fleetMinute/12); err != nil {
			return 0, least, err
		}
		m, err := r.memory(ctx)
		if err != nil {
			return 0, least, err
		}
		least.live, least.inUse = math.Min(least.live, m.live), math.Min(least.inUse, m.inUse)
		least.resident, least.peak = math.Max(least.resident, m.resident), m.peak
	}
	ended, after, err := r.spent()
	return (after - before).Seconds() / ended.Sub(began).Seconds(), least, err
}

func (r *fleetReplica) spent() (time.Time, time.Duration, error) {
	d, err := proc.CPU(r.process.PID())
	return time.Now(), d, err
}

// isWhole tells of functions that are not supervised.
func (r *fleetReplica) isWhole(ctx context.Context) error {
	n, err := r.gauge(ctx, "skipper_controller_supervisors")
	if err == nil && int(n) != r.fleet.world.functions {
		err = fmt.Errorf("%.0f functions are supervised, want %d", n, r.fleet.world.functions)
	}
	return err
}

func (r *fleetResult) askState(ctx context.Context, c *fleetReplica) error {
	for range fleetCalls {
		began := time.Now()
		state, err := c.state(ctx)
		if err != nil {
			return err
		}
		r.calls = append(r.calls, time.Since(began).Seconds())
		r.bytes = proto.Size(state)
	}
	return nil
}

// takeover starts a second controller and kills the first.
func (f *fleet) takeover(ctx context.Context) (t fleetTakeover, err error) {
	second, err := f.add(ctx)
	if err != nil {
		return t, err
	}
	first := f.replicas[0]
	var owned map[string]bool
	err = await(ctx, "both have converged their functions", time.Second, func(ctx context.Context) (bool, error) {
		state, err := second.state(ctx)
		owned = fleetOwned(state, first.ip)
		decided := fleetDecided(state, time.Time{})
		return err == nil && len(owned) > 0 && len(state.GetControllerIps()) == 2 && len(decided) == f.world.functions, nil
	})
	if err != nil {
		return t, err
	}
	t.functions = len(owned)
	killed := time.Now()
	first.process.Kill()
	noticed := time.AfterFunc(fleetNotice, func() {
		_ = f.api.Put(f.world.controller(first.ip, false)) // it is of a kind that the server knows
	})
	defer noticed.Stop()
	err = await(ctx, "the ring is left", 20*time.Millisecond, func(ctx context.Context) (bool, error) {
		n, err := second.gauge(ctx, "skipper_controller_ring_members")
		return n == 1, err
	})
	if err != nil {
		return t, err
	}
	t.left = time.Since(killed)
	t.all, err = f.converged(ctx, second, owned, killed)
	return t, err
}

// converged waits until all of these functions have been decided on by r since
// then, and returns how long that took. It knows the first decision of each that
// it sees, of which it looks at all once a second.
func (f *fleet) converged(ctx context.Context, r *fleetReplica, owned map[string]bool, since time.Time) (time.Duration, error) {
	first := map[string]time.Time{}
	var last time.Time
	err := await(ctx, "every function is converged again", time.Second, func(ctx context.Context) (bool, error) {
		state, err := r.state(ctx)
		for name, at := range fleetDecided(state, since) {
			if owned[name] && first[name].IsZero() {
				first[name] = at
				if at.After(last) {
					last = at
				}
			}
		}
		return len(first) == len(owned), err
	})
	return last.Sub(since), err
}

// fleetOwned are the functions that a controller is responsible for.
func fleetOwned(state *skipperpb.ClusterState, ip string) map[string]bool {
	out := map[string]bool{}
	for _, s := range state.GetSupervisors() {
		if s.GetResponsibleControllerIp() == ip {
			out[s.GetFunction().GetTenant()] = true
		}
	}
	return out
}

// fleetDecided are the functions on which somebody has decided after since, and when.
func fleetDecided(state *skipperpb.ClusterState, since time.Time) map[string]time.Time {
	out := map[string]time.Time{}
	for _, s := range state.GetSupervisors() {
		if d := s.GetDecision(); d != nil && d.GetDecidedAt().AsTime().After(since) {
			out[s.GetFunction().GetTenant()] = d.GetDecidedAt().AsTime()
		}
	}
	return out
}

var fleetBenchmark = regexp.MustCompile(`(?m)^BenchmarkConverge/(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op`)

// fleetConverges runs the benchmark of one round of one function among 10,000.
func fleetConverges(ctx context.Context) (map[string]float64, error) {
	out, err := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench=^BenchmarkConverge$", "-benchtime=20000x", "./controller/supervise").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("run BenchmarkConverge: %w: %s", err, out)
	}
	found := map[string]float64{}
	for _, m := range fleetBenchmark.FindAllStringSubmatch(string(out), -1) {
		found[m[1]], _ = strconv.ParseFloat(m[2], 64) // the pattern lets only digits through
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("run BenchmarkConverge: no figure in %q", out)
	}
	return found, nil
}
