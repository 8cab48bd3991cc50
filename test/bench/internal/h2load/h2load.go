// Package h2load runs the load program h2load over cleartext HTTP/2 and reads
// the log that it writes of each request.
package h2load

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"skipper/test/bench/internal/report"
	"skipper/test/bench/internal/wrk"
)

// Run loads url for the given time over the given number of connections, with
// one request in progress on each, as wrk does.
func Run(ctx context.Context, url, header string, connections int, d time.Duration) (wrk.Result, error) {
	dir, err := os.MkdirTemp("", "skipper-h2load-")
	if err != nil {
		return wrk.Result{}, fmt.Errorf("make folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // at worst a file stays in the temporary folder
	log := filepath.Join(dir, "log")
	cmd := exec.CommandContext(ctx, "h2load", "-t1", "-m1", "-c"+strconv.Itoa(connections),
		"-D"+strconv.Itoa(int(d/time.Second)), "--log-file="+log, "-H", header, url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return wrk.Result{}, fmt.Errorf("run h2load (apt-get install nghttp2-client): %w: %s", err, out)
	}
	text, err := os.ReadFile(log) //nolint:gosec // the file that was made above
	if err != nil {
		return wrk.Result{}, fmt.Errorf("read log of h2load: %w", err)
	}
	r, err := parse(string(text))
	r.ProcessorTime = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return r, err
}

// parse reads lines of start in microseconds, status and microseconds taken.
func parse(log string) (wrk.Result, error) {
	var r wrk.Result
	var took []time.Duration
	var first, last int64
	for line := range strings.Lines(log) {
		var start, status, micros int64
		if _, err := fmt.Sscan(line, &start, &status, &micros); err != nil {
			return r, fmt.Errorf("read log of h2load, line %q: %w", line, err)
		}
		if first == 0 || start < first {
			first = start
		}
		last = max(last, start+micros)
		took = append(took, time.Duration(micros)*time.Microsecond)
		if status < 200 || status > 399 {
			r.Failed++
		}
	}
	if last <= first {
		return r, fmt.Errorf("read log of h2load: there is no request in its %d lines", len(took))
	}
	r.Requests = len(took)
	r.PerSecond = float64(len(took)) / (float64(last-first) / 1e6)
	r.P50, r.P99 = report.Percentile(took, 0.5), report.Percentile(took, 0.99)
	return r, nil
}
