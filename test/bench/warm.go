package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"skipper/envoy"
	"skipper/test/bench/internal/h2load"
	"skipper/test/bench/internal/proc"
	"skipper/test/bench/internal/report"
	"skipper/test/bench/internal/wrk"
)

// contestant is one way to the backend, and the programs whose processor time
// it costs.
type contestant struct {
	name string
	url  string
	cost []*proc.Process
	// admin is Envoy's, and web extproc's, both ip:port; empty for who has none.
	admin, web string

	perSecond, cpuMicros []float64
	each                 map[string][]float64 // per program, in microseconds per request
	p50, p99             []float64            // in milliseconds
	failed               int
}

// load is a load program, over a version of HTTP.
type load struct {
	protocol string
	run      func(ctx context.Context, url, header string, connections int, d time.Duration) (wrk.Result, error)
}

func programs() []load { return []load{{"HTTP/1.1", wrk.Run}, {"HTTP/2", h2load.Run}} }

// turn loads the contestant once and notes what it saw.
func (c *contestant) turn(ctx context.Context, l load, connections int, d time.Duration) error {
	before, err := cpuOf(c.cost)
	if err != nil {
		return err
	}
	r, err := l.run(ctx, c.url, benchHeader(), connections, d)
	if err != nil {
		return err
	}
	after, err := cpuOf(c.cost)
	if err != nil {
		return err
	}
	sum := 0.0
	for i, p := range c.cost {
		us := float64((after[i] - before[i]).Microseconds()) / float64(max(r.Requests, 1))
		c.each[p.Name] = append(c.each[p.Name], us)
		sum += us
	}
	c.cpuMicros = append(c.cpuMicros, sum)
	c.perSecond = append(c.perSecond, r.PerSecond)
	c.p50 = append(c.p50, float64(r.P50.Microseconds())/1000)
	c.p99 = append(c.p99, float64(r.P99.Microseconds())/1000)
	c.failed += r.Failed
	return nil
}

func cpuOf(ps []*proc.Process) ([]time.Duration, error) {
	out := make([]time.Duration, len(ps))
	for i, p := range ps {
		d, err := proc.CPU(p.PID())
		if err != nil {
			return nil, err
		}
		out[i] = d
	}
	return out, nil
}

// field holds the programs of a warm measurement.
type field struct {
	dir   string
	procs []*proc.Process
}

// measureWarm loads all contestants for each version of HTTP and number of
// connections, and returns the tables.
func measureWarm(ctx context.Context, o options) (string, error) {
	dir, err := os.MkdirTemp("", "skipper-bench-")
	if err != nil {
		return "", err
	}
	f := &field{dir: dir}
	defer f.stop()
	out := ""
	contestants, err := f.start(ctx)
	if err != nil {
		return "", err
	}
	for _, l := range programs() {
		for _, n := range o.connections {
			if err := turns(ctx, contestants, l, n, o); err != nil {
				return "", err
			}
			out += fmt.Sprintf("%d connections, %s:\n\n%s\n", n, l.protocol, warmTable(contestants))
		}
	}
	return out, os.RemoveAll(dir)
}

// turns forgets what was seen and loads the contestants in turn, round by round.
func turns(ctx context.Context, cs []*contestant, l load, connections int, o options) error {
	for i, c := range cs {
		*cs[i] = contestant{name: c.name, url: c.url, cost: c.cost, admin: c.admin, web: c.web, each: map[string][]float64{}}
	}
	for range o.rounds {
		for _, c := range cs {
			if err := c.turn(ctx, l, connections, o.duration); err != nil {
				return fmt.Errorf("load %s over %d connections, %s: %w", c.name, connections, l.protocol, err)
			}
		}
	}
	return nil
}

func warmTable(cs []*contestant) string {
	t := report.Table{Header: []string{"contestant", "requests/s", "p50 ms", "p99 ms", "CPU us/request", "of which", "failed"}}
	for _, c := range cs {
		parts := ""
		for _, p := range c.cost {
			parts += fmt.Sprintf("%s %.0f ", p.Name, report.SpreadOf(c.each[p.Name]).Median)
		}
		t.Add(c.name, report.SpreadOf(c.perSecond).Format(0), report.SpreadOf(c.p50).Format(2), report.SpreadOf(c.p99).Format(2),
			report.SpreadOf(c.cpuMicros).Format(0), parts, strconv.Itoa(c.failed))
	}
	return t.Markdown()
}

// start brings up the backend, the stub controller and every contestant.
func (f *field) start(ctx context.Context) ([]*contestant, error) {
	addr, err := freeAddrs(4)
	if err != nil {
		return nil, err
	}
	backend, controller := addr[0], addr[1]
	cs, err := f.envoys(ctx, backend, controller)
	if err != nil {
		return nil, err
	}
	plain, err := f.rival(ctx, "router", addr[2], controller)
	if err != nil {
		return nil, err
	}
	tuned, err := f.rival(ctx, "router-tuned", addr[3], controller)
	if err != nil {
		return nil, err
	}
	return append(cs, plain, tuned), f.wait(ctx, plain, tuned)
}

// envoys brings up the backend, the stub controller and the two contestants that
// are Envoys.
func (f *field) envoys(ctx context.Context, backend, controller string) ([]*contestant, error) {
	addr, err := freeAddrs(6)
	if err != nil {
		return nil, err
	}
	if err := f.self(ctx, "backend", "backend", backend); err != nil {
		return nil, err
	}
	if err := f.self(ctx, "stub", "controller", controller, backend); err != nil {
		return nil, err
	}
	skipper, err := f.skipper(ctx, controller, addr[0], addr[1], addr[2], addr[3])
	if err != nil {
		return nil, err
	}
	alone, err := f.plainEnvoy(ctx, backend, addr[4], addr[5])
	if err != nil {
		return nil, err
	}
	return []*contestant{skipper, alone}, f.wait(ctx, skipper, alone)
}

func (f *field) wait(ctx context.Context, cs ...*contestant) error {
	for _, c := range cs {
		if err := waitOK(ctx, c.url); err != nil {
			return fmt.Errorf("wait for %s (logs in %s): %w", c.name, f.dir, err)
		}
	}
	return nil
}

func (f *field) stop() {
	for i := len(f.procs) - 1; i >= 0; i-- {
		f.procs[i].Stop()
	}
}

func (f *field) run(ctx context.Context, name, path string, args ...string) (*proc.Process, error) {
	p, err := proc.Start(ctx, f.dir, name, path, args...)
	if err == nil {
		f.procs = append(f.procs, p)
	}
	return p, err
}

// self starts this program under one of its hidden verbs.
func (f *field) self(ctx context.Context, name string, args ...string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	_, err = f.run(ctx, name, exe, args...)
	return err
}

func (f *field) last() *proc.Process { return f.procs[len(f.procs)-1] }

// skipper starts extproc and the Envoy in front of it.
func (f *field) skipper(ctx context.Context, controller string, listen, admin, ready, web string) (*contestant, error) {
	bin, err := buildProgram(ctx, f.dir, "extproc")
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(controller)
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(f.dir, "extproc.sock")
	_, webPort, err := net.SplitHostPort(web)
	if err != nil {
		return nil, err
	}
	extproc, err := f.run(ctx, "extproc", bin, "--controller-service-host="+host, "--controller-port="+port,
		"--listen="+socket, "--web-port="+webPort, "--router-ip=127.0.0.1", "--envoy-node-id=bench", "--insecure-plaintext")
	if err != nil {
		return nil, err
	}
	cfg := envoy.Default()
	cfg.NodeID, cfg.NodeCluster = "bench", "bench"
	cfg.Admin, cfg.Extproc, cfg.ControllerHost = admin, socket, host
	cfg.ControllerPlaintext = true
	cfg.HTTPPort, cfg.ReadyPort, cfg.ControllerPort = portOf(listen), portOf(ready), portOf(controller)
	b, err := envoy.Bootstrap(cfg)
	if err != nil {
		return nil, err
	}
	text, err := envoy.YAML(b)
	if err != nil {
		return nil, err
	}
	p, err := f.envoy(ctx, "envoy", text)
	if err != nil {
		return nil, err
	}
	return &contestant{
		name: "Skipper: Envoy + extproc", url: "http://" + listen + "/", cost: []*proc.Process{p, extproc}, admin: admin, web: web,
	}, nil
}

func (f *field) rival(ctx context.Context, verb, listen, controller string) (*contestant, error) {
	if err := f.self(ctx, verb, verb, listen, controller); err != nil {
		return nil, err
	}
	name := map[string]string{"router": "(b) Go reverse proxy, default transport", "router-tuned": "(c) Go reverse proxy, keep-alive transport"}[verb]
	// What the stub controller spends on being asked is not the router's cost.
	return &contestant{name: name, url: "http://" + listen + "/", cost: []*proc.Process{f.last()}}, nil
}

func (f *field) envoy(ctx context.Context, name string, config []byte) (*proc.Process, error) {
	path := os.Getenv("SKIPPER_ENVOY")
	if path == "" {
		return nil, errors.New("SKIPPER_ENVOY is empty: run `make bench`, which sets it")
	}
	file := filepath.Join(f.dir, name+".yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, err
	}
	return f.run(ctx, name, path, "-c", file, "--concurrency", "2", "--use-dynamic-base-id", "-l", "warning")
}

// freeAddrs finds loopback addresses that nobody listens on.
func freeAddrs(n int) ([]string, error) {
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed in the same breath
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		out = append(out, l.Addr().String())
	}
	return out, nil
}

// portOf takes the port off one of our own listeners' addresses.
func portOf(addr string) uint16 { return netip.MustParseAddrPort(addr).Port() }

// waitOK asks until the contestant answers 200.
func waitOK(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		r.Header.Set("X-Skipper-Function", benchHeader()[len("X-Skipper-Function: "):])
		res, err := (&http.Client{}).Do(r)
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("answered %s (%s)", res.Status, res.Header.Get("x-skipper-reason"))
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
