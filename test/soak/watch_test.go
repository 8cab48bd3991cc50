//go:build e2e

package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// allowed is what a part may grow by in a run. Restarts are part of it, so each
// process is judged by itself, if it lived for some minutes; until its warm-up is
// over it fills caches, and its heap finds its size.
var allowed = Steady{
	WarmUp: 90 * time.Second, Least: 3 * time.Minute,
	Goroutines: Growth{Amount: 100, Share: .25}, Files: Growth{Amount: 30, Share: .25}, Resident: Growth{Amount: 64 << 20, Share: .25},
}

// inHand are the metrics of requests in hand; controllers have the first, extprocs
// the others.
var inHand = [...]string{"skipper_controller_waiting_callers", "skipper_extproc_hold_queue_requests", "skipper_extproc_in_flight_requests"}

// sampleEvery is how often parts are asked what they hold.
const sampleEvery = 5 * time.Second

// watchParts samples controllers and extprocs through their metrics until ctx
// ends, and then fails the test where one of them grew. What does not answer is
// left out: it is being restarted, frozen or cut off.
func (w *world) watchParts(ctx context.Context) {
	var watching sync.WaitGroup
	for name, web := range w.webs() {
		watching.Go(func() { w.watchPart(ctx, name, web) })
	}
	watching.Wait()
}

// webs are the addresses of the parts' metrics, by name.
func (w *world) webs() map[string]string {
	parts := map[string]string{}
	for _, r := range w.controllers {
		parts[r.Name] = fmt.Sprintf("http://%s:%d", r.ip, controllerWeb)
	}
	for _, g := range w.gateways {
		parts[g.extproc.Name] = g.extprocWeb
	}
	return parts
}

// holdings is what each part that answers holds, by name.
func (w *world) holdings(ctx context.Context) map[string]Sample {
	out := map[string]Sample{}
	for name, web := range w.webs() {
		if s, err := sample(ctx, web+"/metrics"); err == nil {
			out[name] = s
		}
	}
	return out
}

// emptyWithin is how long parts may take to let go of what the clients have left:
// functions live until their heartbeat timeout.
const emptyWithin = 3 * time.Minute

// wantHoldings waits until each part has no request in hand and holds about what
// it held before there were any, and fails the test where one does not.
func (w *world) wantHoldings(before map[string]Sample) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), emptyWithin)
	defer cancel()
	var more []string
	for {
		now := w.holdings(ctx)
		if more = allowed.More(before, now); len(more) == 0 {
			w.t.Logf("after the last request, as before the first: %+v", now)
			return
		}
		if !pause(ctx, sampleEvery) {
			w.t.Errorf("%v after the last request there is left: %s", emptyWithin, strings.Join(more, "; "))
			return
		}
	}
}

func (w *world) watchPart(ctx context.Context, name, web string) {
	var samples []Sample
	for began := time.Now(); pause(ctx, sampleEvery); {
		if s, err := sample(ctx, web+"/metrics"); err == nil {
			s.At = time.Since(began)
			samples = append(samples, s)
		}
	}
	w.t.Logf("%s: %d samples", name, len(samples))
	for _, f := range allowed.Judge(samples) {
		w.t.Logf("%s: %s", name, f)
		if !f.Flat {
			w.t.Errorf("%s: %s", name, f)
		}
	}
}

func sample(ctx context.Context, url string) (Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, sampleEvery)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Sample{}, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return Sample{}, err
	}
	text, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return Sample{}, err
	}
	return parseSample(string(text))
}

func parseSample(text string) (Sample, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return Sample{}, fmt.Errorf("parse metrics: %w", err)
	}
	gauge := func(name string) float64 {
		f := families[name]
		if f == nil {
			err = errors.Join(err, fmt.Errorf("no metric %s", name))
			return 0
		}
		return f.GetMetric()[0].GetGauge().GetValue()
	}
	s := Sample{
		Start: gauge("process_start_time_seconds"), Goroutines: gauge("go_goroutines"),
		Files: gauge("process_open_fds"), Resident: gauge("process_resident_memory_bytes"),
	}
	for _, name := range inHand {
		if families[name] != nil {
			s.Work = append(s.Work, gauge(name))
		}
	}
	return s, err
}
