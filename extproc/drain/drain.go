// Package drain ends an Envoy without cutting what it has in progress. Envoy
// itself exits at once when it is told to; so whoever stops it (a preStop hook)
// asks here first, and is answered when nothing is in progress any more.
package drain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// Least is how long a drain takes at least: until every node has learned
	// that the gateway takes no new connections.
	Least = 5 * time.Second
	// look is how often Envoy is asked what it has in progress.
	look = 250 * time.Millisecond
	// attempt bounds one call to Envoy's admin interface.
	attempt = 2 * time.Second
	// misses is after how many failed looks in a row Envoy counts as ended.
	misses = 4
	// maxStats bounds what is read of an answer.
	maxStats = 64 << 10
)

// active is the statistic of requests in progress, upgrades among them, of the
// listener for clients (package envoy).
const active = "http.ingress.downstream_rq_active"

// Drainer drains one Envoy. Safe for concurrent use: all callers wait for the
// same drain. Use New.
type Drainer struct {
	client *http.Client
	base   string
	log    *zap.Logger

	once  sync.Once
	begun time.Time // guarded by once
}

// New returns a drainer of the Envoy whose admin interface is at place, an
// absolute path of a socket or an "ip:port".
func New(place string, log *zap.Logger) *Drainer {
	d := &Drainer{client: &http.Client{Timeout: attempt}, base: "http://" + place, log: log}
	if strings.HasPrefix(place, "/") {
		d.base = "http://envoy"
		d.client.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", place)
		}}
	}
	return d
}

// ServeHTTP answers a GET when Envoy has nothing in progress, or has ended. It
// takes no connection away: Envoy fails its health checks and asks clients to
// go elsewhere, but serves who still comes. There is no way back.
func (d *Drainer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "drain with GET, as a preStop hook does", http.StatusMethodNotAllowed)
		return
	}
	if err := d.Drain(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "drained\n") // a hook that left needs no answer
}

// Drain returns nil when Envoy has nothing in progress, at least Least after
// the first call; the context's error when that ends before.
func (d *Drainer) Drain(ctx context.Context) error {
	d.once.Do(func() { d.begin(context.WithoutCancel(ctx)) }) // for all who wait, also where this one leaves
	tick := time.NewTicker(look)
	defer tick.Stop()
	var seen history
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for requests in progress: %w", ctx.Err())
		case now := <-tick.C:
			n, err := d.inProgress(ctx)
			if done, why := seen.add(n, err, now.Sub(d.begun)); done {
				d.log.Info("gateway drained", zap.String("why", why), zap.Duration("after", now.Sub(d.begun)))
				return nil
			}
		}
	}
}

func (d *Drainer) begin(ctx context.Context) {
	d.begun = time.Now()
	if _, err := d.call(ctx, http.MethodPost, "/healthcheck/fail"); err != nil {
		d.log.Warn("Envoy cannot be asked to fail its health checks", zap.Error(err))
		return
	}
	d.log.Info("gateway drains: its health checks fail, and clients are asked to go elsewhere")
}

// history is what has been seen of a drain.
type history struct {
	failed int // looks in a row that failed
	idle   int // looks in a row that found nothing in progress
}

// add takes a look in and says whether the drain is over. One idle look is not
// enough: a request may lie between two of a client's.
func (h *history) add(n int, err error, since time.Duration) (done bool, why string) {
	switch {
	case err != nil:
		h.failed, h.idle = h.failed+1, 0
	case n > 0:
		h.failed, h.idle = 0, 0
	default:
		h.failed, h.idle = 0, h.idle+1
	}
	switch {
	case h.failed >= misses:
		return true, "Envoy does not answer: " + err.Error()
	case h.idle >= 2 && since >= Least:
		return true, "no request in progress"
	}
	return false, ""
}

func (d *Drainer) inProgress(ctx context.Context) (int, error) {
	body, err := d.call(ctx, http.MethodGet, "/stats?format=json&filter="+url.QueryEscape("^"+active+"$"))
	if err != nil {
		return 0, err
	}
	return parseActive(body)
}

// parseActive reads the one statistic that was asked for.
func parseActive(body []byte) (int, error) {
	var answer struct {
		Stats []struct {
			Name  string `json:"name"`
			Value *int   `json:"value"`
		} `json:"stats"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, fmt.Errorf("read statistics of Envoy: %w", err)
	}
	for _, s := range answer.Stats {
		if s.Name == active && s.Value != nil && *s.Value >= 0 {
			return *s.Value, nil
		}
	}
	return 0, errors.New("read statistics of Envoy: " + active + " is missing")
}

func (d *Drainer) call(ctx context.Context, method, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, d.base+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask Envoy: %w", err)
	}
	resp, err := d.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("ask Envoy: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxStats))
	if err != nil {
		return nil, fmt.Errorf("read Envoy's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask Envoy for %s %s: status %d", method, path, resp.StatusCode)
	}
	return body, nil
}
