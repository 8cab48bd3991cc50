// Package wrk runs the load program wrk and reads what it prints.
package wrk

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// Result is one run of wrk.
type Result struct {
	Requests      int           // answered
	PerSecond     float64       // answered per second
	P50, P99      time.Duration // latency
	Failed        int           // socket errors and answers other than 2xx and 3xx
	ProcessorTime time.Duration // of wrk itself
}

// Run loads url for the given time over the given number of connections.
func Run(ctx context.Context, url, header string, connections int, d time.Duration) (Result, error) {
	cmd := exec.CommandContext(ctx, "wrk", "-t1", "-c"+strconv.Itoa(connections),
		"-d"+strconv.Itoa(int(d/time.Second))+"s", "--timeout", "30s", // or what takes 2 s would count as failed
		"--latency", "-H", header, url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return Result{}, fmt.Errorf("run wrk (apt-get install wrk): %w: %s", err, out)
	}
	r, err := parse(string(out))
	r.ProcessorTime = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return r, err
}

var (
	requests  = regexp.MustCompile(`(\d+) requests in`)
	perSecond = regexp.MustCompile(`Requests/sec:\s+([\d.]+)`)
	median    = regexp.MustCompile(`\n\s+50%\s+([\d.]+[a-z]+)`)
	tail      = regexp.MustCompile(`\n\s+99%\s+([\d.]+[a-z]+)`)
	non2xx    = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
	socket    = regexp.MustCompile(`Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)`)
)

func parse(out string) (Result, error) {
	var r Result
	n, rate := requests.FindStringSubmatch(out), perSecond.FindStringSubmatch(out)
	p50, p99 := median.FindStringSubmatch(out), tail.FindStringSubmatch(out)
	if n == nil || rate == nil || p50 == nil || p99 == nil {
		return r, fmt.Errorf("read output of wrk: a figure is missing in %q", out)
	}
	// The patterns let only digits through.
	r.Requests, _ = strconv.Atoi(n[1])
	r.PerSecond, _ = strconv.ParseFloat(rate[1], 64)
	r.P50, _ = time.ParseDuration(p50[1])
	r.P99, _ = time.ParseDuration(p99[1])
	for _, m := range [][]string{non2xx.FindStringSubmatch(out), socket.FindStringSubmatch(out)} {
		for _, s := range m[min(1, len(m)):] {
			k, _ := strconv.Atoi(s)
			r.Failed += k
		}
	}
	return r, nil
}
