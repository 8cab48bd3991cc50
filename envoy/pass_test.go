package envoy_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skipper/envoy"
)

// cause is why a pod does not take a request.
type cause struct {
	name    string
	host    func(testing.TB) string
	attempt string // what the next stream is told: 1 not known, 2 tried
	h2c     bool   // of pods that speak HTTP/2 only
}

func causes() []cause {
	return []cause{
		{"host unknown", unknownHost, "1", false},
		{"connection refused", refusingHost, "2", false},
		{"connection not taken", silentHost, "2", false},
		{"misdirected", misdirectingHost, "2", false},
		{"stream refused", streamRefusingHost, "2", true},
		{"going away", leavingHost, "2", true},
	}
}

func TestNextPassTakesOverWhatNoPodHasBegun(t *testing.T) {
	t.Parallel()
	for _, c := range causes() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, nil)
			bad := c.host(t)
			for _, e := range exchanges() {
				if c.h2c && e.cluster != h2cCluster {
					continue
				}
				g.talkPastBadHost(t, e, c, bad)
			}
		})
	}
}

// talkPastBadHost has the exchange with one bad pick before each good one.
func (g *gateway) talkPastBadHost(t *testing.T, e exchange, c cause, bad string) {
	t.Helper()
	t.Run(e.name, func(t *testing.T) {
		pod := startPod(t, e.pod)
		hosts := []string{pod.addr}
		if c.attempt == "2" {
			hosts = append(hosts, bad)
		}
		g.pods(t, e.cluster, hosts...)
		g.processor.route("fn", e.cluster, bad, pod.addr)
		before := len(g.processor.requests())
		e.talk(t, g)
		picks := g.processor.attempts()[before:]
		requests := int(pod.requests.Load())
		if diff := cmp.Diff(repeat(requests, "-", c.attempt), picks); diff != "" || requests == 0 {
			t.Errorf("%d requests; attempts that extproc was told (-want +got):\n%s", requests, diff)
		}
		for range picks {
			g.ended(t)
		}
	})
}

func repeat(n int, what ...string) []string {
	var out []string
	for range n {
		out = append(out, what...)
	}
	return out
}

func TestEveryPassIsOnePickAndOneRequest(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	var hosts []string
	var refusing []*countingPod
	for range 3 {
		pod := startPod(t, http.HandlerFunc(misdirected))
		refusing = append(refusing, pod)
		hosts = append(hosts, refusingHost(t), pod.addr)
	}
	g.pods(t, http1Cluster, hosts...)
	g.processor.route("fn", http1Cluster, hosts...)
	a := g.do(t, g.request(t, http.MethodPost, "fn", strings.NewReader("body")))
	if diff := cmp.Diff(told{503, []string{"hold_timeout"}, []string{"7"}}, tell(a)); diff != "" || a.body != "nobody can answer" {
		t.Errorf("body %q (-want +got):\n%s", a.body, diff)
	}
	if diff := cmp.Diff([]string{"-", "2", "2", "2", "2", "2", "2"}, g.processor.attempts()); diff != "" {
		t.Errorf("six picks and the refusal of a seventh (-want +got):\n%s", diff)
	}
	for i, pod := range refusing {
		if n := pod.requests.Load(); n != 1 {
			t.Errorf("pod %d was sent %d requests", i, n)
		}
	}
	for range 7 {
		g.ended(t)
	}
}

// A pod that has the whole request may have done its work.
func TestWhatAPodHasBegunIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, cluster := range []string{http1Cluster, h2cCluster} {
		t.Run(cluster, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, nil)
			begun := startPod(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				panic(http.ErrAbortHandler)
			}))
			other := startPod(t, http.HandlerFunc(echoPod))
			g.pods(t, cluster, begun.addr, other.addr)
			g.processor.route("fn", cluster, begun.addr, other.addr)
			a := g.do(t, g.request(t, http.MethodPost, "fn", strings.NewReader("body")))
			if diff := cmp.Diff(told{503, []string{"instance_reset"}, []string{"1"}}, tell(a)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if a, b := begun.requests.Load(), other.requests.Load(); a != 1 || b != 0 {
				t.Errorf("the pods were sent %d and %d requests", a, b)
			}
			g.ended(t)
		})
	}
}

// A connection that the pod closes under a request is lost with it: nothing
// shows that the pod has not read it.
func TestStaleConnectionLosesItsRequestOnly(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	stale := listen(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
		_, _ = conn.Read(make([]byte, 1))
	})
	g.pod(t, "fn", http1Cluster, stale)
	if a := g.do(t, g.request(t, http.MethodGet, "fn", nil)); a.status != http.StatusOK {
		t.Fatalf("first answer is %+v", a)
	}
	a := g.do(t, g.request(t, http.MethodGet, "fn", nil))
	if diff := cmp.Diff(told{503, []string{"instance_reset"}, []string{"1"}}, tell(a)); diff != "" {
		t.Errorf("second answer (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"-", "-"}, g.processor.attempts()); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
}

func TestBodyThatCannotBeSentAgain(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		host func(testing.TB) string
		want string
	}{
		{"misdirected", slowMisdirectingHost, "body_not_replayable"},
		{"connection not taken", silentHost, "connect_failed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, func(c *envoy.Config) { c.RetryBuffer = 64 << 10 })
			bad, good := row.host(t), startPod(t, http.HandlerFunc(lengthPod))
			g.pods(t, http1Cluster, bad, good.addr)
			g.processor.route("fn", http1Cluster, bad, good.addr)
			a := g.do(t, g.request(t, http.MethodPut, "fn", io.LimitReader(zeros{}, upload)))
			if diff := cmp.Diff(told{503, []string{row.want}, []string{"1"}}, tell(a)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !strings.Contains(a.body, "too large to be sent to another") {
				t.Errorf("body is %q", a.body)
			}
			if n := good.requests.Load(); n != 0 {
				t.Errorf("the other pod was sent %d requests", n)
			}
			g.ended(t)
		})
	}
}

// slowMisdirectingHost refuses a request as meant for another when it has all of it.
func slowMisdirectingHost(t testing.TB) string {
	t.Helper()
	return startPod(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		misdirected(w, r)
	})).addr
}
