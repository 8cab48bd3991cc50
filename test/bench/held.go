package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skipper/test/bench/internal/proc"
	"skipper/test/bench/internal/report"
	"skipper/test/hollow"
)

const heldIntro = `Requests that stay open, half of them answers that are late, half WebSockets, each on a client's connection of its own
(HTTP/1.1), first through Envoy and extproc, then through the same Envoy without ext_proc. Memory is what a process has
resident: after 200 single requests, at the end of the time for which all were held, and 10 s after the last has ended. The
aim is at most 20 kB of extproc per request and no error.

`

// heldWarmUp is how many single requests come before the first look at memory.
const heldWarmUp = 200

// heldRest is how long after the last request memory is read again.
const heldRest = 10 * time.Second

// heldReading is what the programs of a contestant hold on to.
type heldReading struct {
	resident   []uint64 // bytes, by program
	goroutines float64  // of extproc; 0 without it
}

// heldResult is what came of a contestant.
type heldResult struct {
	before, held, after heldReading
	arrived, stayed     int // at the backend, at the begin and the end of the time
	failed              int
	how                 map[string]int
	overflow            []string // Envoy's statistics of refusals that are not 0
}

// measureHeld holds requests open through each Envoy and returns the table.
func measureHeld(ctx context.Context, o options) (string, error) {
	if err := raiseFiles(); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "skipper-bench-")
	if err != nil {
		return "", err
	}
	f := &field{dir: dir}
	defer f.stop()
	addr, err := freeAddrs(2)
	if err != nil {
		return "", err
	}
	cs, err := f.envoys(ctx, addr[0], addr[1])
	if err != nil {
		return "", err
	}
	var results []heldResult
	for _, c := range cs {
		r, err := holdOpen(ctx, c, "http://"+addr[0], o)
		if err != nil {
			return "", fmt.Errorf("hold requests through %s (logs in %s): %w", c.name, dir, err)
		}
		results = append(results, r)
	}
	return heldTable(o, cs, results), os.RemoveAll(dir)
}

// raiseFiles allows this program, and those that it starts, as many open files
// as the system lets it: a request takes two of Envoy's.
func raiseFiles() error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("read limit of open files: %w", err)
	}
	l.Cur = l.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("raise limit of open files: %w", err)
	}
	return nil
}

// holdOpen opens the requests, holds them, and looks before, meanwhile and after.
func holdOpen(ctx context.Context, c *contestant, backend string, o options) (r heldResult, err error) {
	for range heldWarmUp {
		if err := waitOK(ctx, c.url); err != nil {
			return r, err
		}
	}
	if r.before, err = readHeld(ctx, c); err != nil {
		return r, err
	}
	crowd := newHeldCrowd(o.held)
	crowd.open(ctx, strings.Trim(strings.TrimPrefix(c.url, "http://"), "/"))
	if r.arrived, err = awaitHeld(ctx, backend, o.held); err != nil {
		return r, err
	}
	if err := pauseFor(ctx, o.heldFor); err != nil {
		return r, err
	}
	if r.held, err = readHeld(ctx, c); err != nil {
		return r, err
	}
	if r.stayed, err = heldAt(ctx, backend); err != nil {
		return r, err
	}
	if _, err := get(ctx, backend+heldRelease); err != nil {
		return r, err
	}
	crowd.finish()
	r.failed, r.how = crowd.failed()
	if err := pauseFor(ctx, heldRest); err != nil {
		return r, err
	}
	if r.overflow, err = overflows(ctx, c.admin); err != nil {
		return r, err
	}
	r.after, err = readHeld(ctx, c)
	return r, err
}

func readHeld(ctx context.Context, c *contestant) (r heldReading, err error) {
	for _, p := range c.cost {
		now, _, err := proc.Memory(p.PID())
		if err != nil {
			return r, err
		}
		r.resident = append(r.resident, now)
	}
	if c.web == "" {
		return r, nil
	}
	m, err := hollow.Metric(ctx, "http://"+c.web, "go_goroutines", "")
	r.goroutines = m[""]
	return r, err
}

// awaitHeld waits until n requests are at the backend, or no longer come.
func awaitHeld(ctx context.Context, backend string, n int) (arrived int, err error) {
	for range int(heldPatience / time.Second) {
		if arrived, err = heldAt(ctx, backend); err != nil || arrived == n {
			return arrived, err
		}
		if err := pauseFor(ctx, time.Second); err != nil {
			return arrived, err
		}
	}
	return arrived, nil
}

func heldAt(ctx context.Context, backend string) (int, error) {
	text, err := get(ctx, backend+heldCount)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(text))
}

// overflows are Envoy's statistics of what it refused because of a limit.
func overflows(ctx context.Context, admin string) ([]string, error) {
	text, err := get(ctx, "http://"+admin+"/stats?filter=overflow&usedonly")
	var out []string
	for line := range strings.Lines(text) {
		if _, value, _ := strings.Cut(strings.TrimSpace(line), ": "); value != "0" {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out, err
}

// get reads a small page of one of our own programs.
func get(ctx context.Context, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }() // it was read
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", url, res.Status, b)
	}
	return string(b), err
}

func heldTable(o options, cs []*contestant, results []heldResult) string {
	t := report.Table{Header: []string{"contestant", "program", "before MB", "held MB", "after MB", "kB per request", "goroutines before / held / after"}}
	text := ""
	for i, r := range results {
		for j, p := range cs[i].cost {
			goroutines := ""
			if p.Name == "extproc" {
				goroutines = fmt.Sprintf("%.0f / %.0f / %.0f", r.before.goroutines, r.held.goroutines, r.after.goroutines)
			}
			before, held := float64(r.before.resident[j]), float64(r.held.resident[j])
			t.Add(cs[i].name, p.Name, fmt.Sprintf("%.1f", before/1e6), fmt.Sprintf("%.1f", held/1e6),
				fmt.Sprintf("%.1f", float64(r.after.resident[j])/1e6), fmt.Sprintf("%.1f", (held-before)/1000/float64(o.held)), goroutines)
		}
		text += fmt.Sprintf("\n%s: of %d requests %d came to the backend and %d were there after %s; failed %d %v; Envoy's overflows: %v.\n",
			cs[i].name, o.held, r.arrived, r.stayed, o.heldFor, r.failed, r.how, r.overflow)
	}
	return t.Markdown() + text
}
