package lifetime

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"skipper/envoy"
	"skipper/envoy/envoytest"
)

// crowd is many clients that share connections where their protocol can.
type crowd struct {
	*world
	client *http.Client
	wg     sync.WaitGroup

	mu  sync.Mutex
	saw map[string]int
}

func newCrowd(t testing.TB, w *world, wire wire) *crowd {
	t.Helper()
	transport, free := (&call{wire: wire}).transport(&clientConns{})
	t.Cleanup(free)
	return &crowd{world: w, client: &http.Client{Transport: transport}, saw: map[string]int{}}
}

// ask sends one request and says what came of it.
func (c *crowd) ask(ctx context.Context, act, function string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.gateway()+"/", nil)
	if err != nil {
		return err.Error()
	}
	req.Header.Set(headerAct, act)
	req.Header.Set(envoy.HeaderFunction, function)
	res, err := c.client.Do(req)
	if err != nil {
		return failure(ctx, sawNothing)
	}
	defer res.Body.Close()
	return (&call{}).read(ctx, res, nil, nil)
}

// send has n clients ask, and counts what they see.
func (c *crowd) send(ctx context.Context, n int, act string, function func(i int) string) {
	for i := range n {
		c.wg.Go(func() {
			saw := c.ask(ctx, act, function(i))
			c.mu.Lock()
			defer c.mu.Unlock()
			c.saw[saw]++
		})
	}
}

// heard is what all saw, when all are done.
func (c *crowd) heard() map[string]int {
	c.wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.saw
}

// usage is what extproc holds on to.
type usage struct {
	goroutines, files int
	resident          float64
}

func (w *world) usage(t testing.TB) usage {
	t.Helper()
	m := w.extproc.metrics(t)
	return usage{int(m["go_goroutines"]), int(m["process_open_fds"]), m["process_resident_memory_bytes"]}
}

// slack is for connections that Envoy opens or closes for reasons of its own.
const slack = 25

// returned waits until extproc holds no more than it did.
func (w *world) returned(t *testing.T, before usage) {
	t.Helper()
	var now usage
	soon(t, "extproc holds no more than before", func() bool {
		now = w.usage(t)
		return now.goroutines <= before.goroutines+slack && now.files <= before.files+slack
	})
	t.Logf("before %+v, after %+v", before, now)
}

// warmedUp is the usage after the first requests.
func (w *world) warmedUp(t *testing.T) usage {
	t.Helper()
	c := newCrowd(t, w, http2Wire)
	c.send(t.Context(), 200, "answer", func(int) string { return header(poolHTTP1, "warm-up", false) })
	if diff := cmp.Diff(map[string]int{"200": 200}, c.heard()); diff != "" {
		t.Fatalf("warming up (-want +got):\n%s", diff)
	}
	w.settle(t, tally{}, 0)
	return w.usage(t)
}

func (w *world) waitForQueue(t *testing.T, n int) {
	t.Helper()
	envoytest.Eventually(t, fmt.Sprintf("%d requests wait", n), func() bool { return w.extproc.metrics(t).count("hold_queue_requests") == n })
}

// A thousand clients leave a cold start: half wait for the same function, half
// for oneshots, by HTTP/1.1 and HTTP/2.
func TestThousandClientsLeaveAColdStart(t *testing.T) {
	const each = 250
	w := newWorld(t, deployed, patient())
	before := w.warmedUp(t)
	gate := w.shut()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var crowds []*crowd
	for _, wire := range []wire{http1, http2Wire} {
		shared, once := newCrowd(t, w, wire), newCrowd(t, w, wire)
		shared.send(ctx, each, "answer", func(int) string { return header(poolHTTP1, "shared", false) })
		once.send(ctx, each, "answer", func(int) string { return header(poolHTTP1, "once", true) })
		crowds = append(crowds, shared, once)
	}
	w.waitForQueue(t, 4*each)
	const questions = 2*each + 1 // one for each oneshot and one for the shared function
	soon(t, "all questions are asked", func() bool { return see(w.controller, func() int { return w.waiting }) == questions })
	leave()
	for _, c := range crowds {
		if diff := cmp.Diff(map[string]int{sawLeft: each}, c.heard()); diff != "" {
			t.Errorf("clients (-want +got):\n%s", diff)
		}
	}
	w.settle(t, tally{}, 0)
	soon(t, "no question is left", func() bool { return see(w.controller, func() int { return w.waiting }) == 0 })
	if n := see(w.controller, func() int { return w.abandoned }); n != questions {
		t.Errorf("%d questions were given up, want all %d", n, questions)
	}
	w.open(gate)
	for _, tenant := range []string{"shared", "once"} {
		if taken, _ := w.pooled(tenant); taken != 0 {
			t.Errorf("%s took %d pods", tenant, taken)
		}
	}
	w.returned(t, before)
	if saw := newCrowd(t, w, http1).ask(t.Context(), "answer", header(poolHTTP1, "shared", false)); saw != "200" {
		t.Errorf("the next client saw %q", saw)
	}
}

// Two hundred oneshots wait in the order in which they came, and are answered in
// it when pods come one by one.
func TestQueueIsServedInOrder(t *testing.T) {
	const n = 200
	w := newWorld(t, deployed, patient())
	w.warmedUp(t)
	gate := w.shut()
	c := newCrowd(t, w, http2Wire)
	done := make(chan int, n)
	for i := range n {
		c.wg.Go(func() {
			if saw := c.ask(t.Context(), "answer", header(poolHTTP1, "queue", true)); saw != "200" {
				t.Errorf("request %d saw %q", i, saw)
			}
			done <- i
		})
		envoytest.Eventually(t, "it waits", func() bool { return see(w.controller, func() int { return w.waiting }) == i+1 })
	}
	for i := range n {
		gate <- struct{}{}
		if got := <-done; got != i {
			t.Fatalf("pod %d went to request %d", i, got)
		}
	}
	c.wg.Wait()
	w.open(gate)
	soon(t, "all pods are given back", func() bool { taken, released := w.pooled("queue"); return taken == n && released == n })
}

// The queue before an empty pool is bounded, and freed by the hold time, which
// the real Envoy passes on.
func TestQueueBeforeAnEmptyPool(t *testing.T) {
	const n = 200
	l := hasty()
	l.args = []string{"--hold-per-function", fmt.Sprint(n)}
	w := newWorld(t, deployed, l)
	before := w.warmedUp(t)
	gate := w.shut()
	f := header(poolHTTP1, "empty", false)
	in, over := newCrowd(t, w, http2Wire), newCrowd(t, w, http1)
	in.send(t.Context(), n, "answer", func(int) string { return f })
	w.waitForQueue(t, n)
	over.send(t.Context(), 20, "answer", func(int) string { return f })
	if diff := cmp.Diff(map[string]int{"429 hold_queue_full": 20}, over.heard()); diff != "" {
		t.Errorf("those above the bound (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"503 hold_timeout": n}, in.heard()); diff != "" {
		t.Errorf("those who wait (-want +got):\n%s", diff)
	}
	w.settle(t, tally{}, 0)
	if asked := see(w.controller, func() int { return w.asked }); asked > 10 {
		t.Errorf("the controller was asked %d times for one function", asked)
	}
	w.open(gate)
	w.returned(t, before)
}

// perStream is what a held request may cost extproc, in bytes.
const perStream = 20_000

// Thousands of requests are held open at once: a third WebSockets, the others
// answers that do not end.
func TestThousandsAreHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, deployed, patient())
	before := w.warmedUp(t)
	s := newStage()
	w.pods.set(s)
	streams := newCrowd(t, w, http2c)
	sockets := *many / 3
	streams.send(t.Context(), *many-sockets, "stream", func(int) string { return header(poolH2C, "held", false) })
	conns := w.openSockets(t, sockets)
	envoytest.Eventually(t, "all are held", func() bool { return w.extproc.metrics(t).count("in_flight_requests") == *many })
	timer := time.NewTimer(*hold)
	defer timer.Stop()
	<-timer.C
	held := w.usage(t)
	if n := w.extproc.metrics(t).count("in_flight_requests"); n != *many {
		t.Errorf("%d are in flight after %v, want %d", n, *hold, *many)
	}
	cost := (held.resident - before.resident) / float64(*many)
	t.Logf("%d requests held for %v: %.1f kB of extproc each; before %+v, held %+v", *many, *hold, cost/1000, before, held)
	if cost > perStream {
		t.Errorf("a held request costs %.1f kB, more than %d kB", cost/1000, perStream/1000)
	}
	for _, conn := range conns {
		if _, err := io.WriteString(conn, "still there?\n"); err != nil {
			t.Error(err)
		}
		if text, err := bufio.NewReader(conn).ReadString('\n'); err != nil || text != "still there?\n" {
			t.Fatalf("a WebSocket answers %q, %v", text, err)
		}
		_ = conn.Close()
	}
	close(s.proceed)
	if diff := cmp.Diff(map[string]int{"200": *many - sockets}, streams.heard()); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	if ends := w.settle(t, tally{}, 0); ends.lost+ends.turned > 0 {
		t.Errorf("streams ended %+v", ends)
	}
	w.noOverflow(t)
	w.returned(t, before)
}

// openSockets opens WebSockets that echo.
func (w *world) openSockets(t *testing.T, n int) []net.Conn {
	t.Helper()
	var out []net.Conn
	for range n {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", w.gateway())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		c := &call{addr: w.gateway(), act: "echo", headers: http.Header{
			envoy.HeaderFunction: {header(poolHTTP1, "sockets", false)}, "Connection": {"upgrade"}, "Upgrade": {"websocket"},
		}}
		_, _ = io.WriteString(conn, c.head("GET /", "HTTP/1.1"))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("WebSocket: %+v, %v", res, err)
		}
		out = append(out, conn)
	}
	return out
}

// noOverflow says that no circuit breaker of Envoy has cut in.
func (w *world) noOverflow(t *testing.T) {
	t.Helper()
	_, text, err := w.envoy.Admin(t.Context(), http.MethodGet, "/stats?filter=overflow&usedonly")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if value != "0" {
			t.Errorf("overflow: %s is %s", name, value)
		}
	}
}

// An extproc that is restarted again and again under traffic leaves nothing behind
// in Envoy, and each next one begins with nothing.
func TestRestartsUnderTrafficLeaveNothing(t *testing.T) {
	w := newWorld(t, deployed, patient())
	before := w.warmedUp(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	for i, wire := range []wire{http1, http2Wire, http2c} {
		c := newCrowd(t, w, wire)
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				c.send(ctx, 1, "answer", func(int) string { return header(poolH2C, fmt.Sprintf("traffic-%d", i), n%5 == 0) })
				c.wg.Wait()
			}
		})
	}
	for range 3 {
		w.restart(t, syscall.SIGTERM)
		w.restart(t, syscall.SIGKILL)
	}
	stop()
	clients.Wait()
	w.forget()
	w.settle(t, tally{}, 0)
	w.returned(t, before)
}
