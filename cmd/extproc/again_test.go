package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/credentials/insecure"

	"skipper/envoy/envoytest"
)

// crowd is pods of which some are no good. It counts what each request met.
type crowd struct {
	mu sync.Mutex
	// served is how often each request was worked on, by its number.
	served map[string]int
}

// good starts a pod that answers with its address and the body that it got.
func (c *crowd) good(t testing.TB) string {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.served[r.Header.Get("X-Number")]++
		c.mu.Unlock()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read body: %v", err)
		}
		fmt.Fprintf(w, "%s %d", r.Host, len(body))
	})
}

// wrong starts a pod that says of every request that it is another pod's.
func wrong(t testing.TB) string {
	return serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Skipper-Misdirected", "1")
		w.WriteHeader(http.StatusMisdirectedRequest)
	})
}

func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// dead is an address that takes no connection.
func dead(t testing.TB) string {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	return ln.Addr().String()
}

// post sends request number n with a body of the given size.
func (g *gateway) post(t testing.TB, n, size int, function string) answer {
	t.Helper()
	req := g.request(context.WithoutCancel(t.Context()), t, "/", function)
	req.Method, req.Body = http.MethodPost, io.NopCloser(strings.NewReader(strings.Repeat("x", size)))
	req.ContentLength = int64(size)
	req.Header.Set("X-Number", fmt.Sprint(n))
	res, err := g.client.Do(req)
	if err != nil {
		t.Error(err)
		return answer{}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return answer{res.StatusCode, res.Header.Get("X-Skipper-Reason"), string(body)}
}

// settled waits until nothing is in progress, and checks that each of the
// requests was worked on once.
func (g *gateway) settled(t testing.TB, c *crowd, requests int) {
	t.Helper()
	envoytest.Eventually(t, "nothing is in progress", func() bool { return g.inFlight() == 0 })
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range requests {
		if got := c.served[fmt.Sprint(n)]; got != 1 {
			t.Errorf("request %d was worked on %d times", n, got)
		}
	}
}

func (g *gateway) shows(t testing.TB, metric string) {
	t.Helper()
	if all := g.metrics(t); !strings.Contains(all, metric+"\n") {
		t.Errorf("no %q in the metrics:\n%s", metric, all[strings.Index(all, "# HELP skipper"):])
	}
}

func TestEnvoyTakesAnotherPodForOneThatFails(t *testing.T) {
	for name, bad := range map[string]func(testing.TB) string{"refuses": dead, "misdirected": wrong} {
		t.Run(name, func(t *testing.T) {
			c := &crowd{served: map[string]int{}}
			g := startGateway(t, []string{bad(t), bad(t), c.good(t)}, nil)
			for n, size := range []int{0, 10, 1 << 20} {
				got := g.post(t, n, size, text(function("t")))
				if got.status != 200 || got.reason != "" || !strings.HasSuffix(got.body, fmt.Sprintf(" %d", size)) {
					t.Errorf("request %d with %d bytes: %+v", n, size, got)
				}
			}
			g.settled(t, c, 3)
		})
	}
}

func TestEnvoyWaitsForAPodThatItHearsOfLater(t *testing.T) {
	c := &crowd{served: map[string]int{}}
	late := c.good(t)
	p := &plane{all: []string{late, dead(t)}, pods: []string{late}, late: []string{late}} // the other one brings the clusters
	p.open(t, insecure.NewCredentials())
	g := startGatewayOn(t, p, nil)
	var request sync.WaitGroup
	request.Go(func() {
		if got := g.post(t, 0, 10, text(function("t"))); got.status != 200 {
			t.Errorf("got %+v", got)
		}
	})
	// Or for a later time, where this look comes late; it tries for three more seconds.
	envoytest.Eventually(t, "Envoy asks for the second time", func() bool {
		return g.value(t, `skipper_extproc_second_passes_total{cause="unknown"}`) >= 2
	})
	p.tell()
	request.Wait()
	g.settled(t, c, 1)
	g.shows(t, `skipper_extproc_second_passes_total{cause="failed"} 0`)
	g.shows(t, "skipper_extproc_quarantines_total 0")
}

func TestEnvoyAnswers503WhenAllPodsAreDead(t *testing.T) {
	g := startGateway(t, []string{dead(t), dead(t), dead(t)}, nil)
	for range 2 {
		if got := g.post(t, 0, 10, text(function("t"))); got.status != 503 || got.reason != "connect_failed" {
			t.Errorf("got %+v", got)
		}
	}
	envoytest.Eventually(t, "nothing is in progress", func() bool { return g.inFlight() == 0 })
	g.shows(t, `skipper_extproc_request_passes_bucket{le="5"} 0`)
	g.shows(t, "skipper_extproc_request_passes_sum 12")
	envoytest.Eventually(t, "the controller hears of all failures", func() bool { return g.failures() == 12 })
}

// failures is what all heartbeats said together.
func (g *gateway) failures() (n int) {
	return see(g.plane, func() int {
		for _, r := range g.beats {
			for _, b := range r.GetHeartbeats() {
				for _, f := range b.GetFailuresByInstance() {
					n += int(f)
				}
			}
		}
		return n
	})
}

func TestEnvoyLosesNothingAmongBadPods(t *testing.T) {
	const requests, clients = 600, 12
	c := &crowd{served: map[string]int{}}
	g := startGateway(t, []string{dead(t), wrong(t), c.good(t), c.good(t)}, nil)
	var all sync.WaitGroup
	for k := range clients {
		all.Go(func() {
			for n := k; n < requests; n += clients {
				if got := g.post(t, n, n%3*1000, text(function("t"))); got.status != 200 {
					t.Errorf("request %d: %+v", n, got)
				}
			}
		})
	}
	all.Wait()
	g.settled(t, c, requests)
}

func TestEnvoyGivesAOneshotAFreshPodForOneThatFails(t *testing.T) {
	c := &crowd{served: map[string]int{}}
	g := startGateway(t, []string{dead(t), wrong(t), c.good(t), c.good(t)}, nil)
	for n := range 2 {
		if got := g.post(t, n, 10, text(oneshot())); got.status != 200 {
			t.Errorf("got %+v", got)
		}
	}
	g.settled(t, c, 2)
	envoytest.Eventually(t, "four pods are released", func() bool { return see(g.plane, func() int { return len(g.released) }) >= 4 })
	want := slices.Sorted(slices.Values(g.all))
	var got []string
	for _, uid := range see(g.plane, func() []string { return slices.Sorted(slices.Values(g.released)) }) {
		got = append(got, strings.TrimPrefix(uid, "uid-"))
	}
	if !slices.Equal(want, got) {
		t.Errorf("released %v, want each of %v once", got, want)
	}
}
