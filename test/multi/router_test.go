//go:build e2e

package multi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/test/router"
)

// front is a router over the world's controllers.
type front struct {
	w    *world
	url  string
	http *http.Client

	mu   sync.Mutex
	dead map[string]bool // addresses of pods that take no connection; guarded by mu
}

func newFront(w *world) *front {
	w.t.Helper()
	x := &front{w: w, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, dead: map[string]bool{}}
	r := router.New(router.Config{
		Controller: w.client(w.addrs()...), IP: "127.0.0.1", HoldTimeout: 30 * time.Second, HeartbeatInterval: 500 * time.Millisecond,
		Transport: &http.Transport{DialContext: x.dial, DisableKeepAlives: true},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	w.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	x.url = fmt.Sprintf("http://127.0.0.1:%d/", w.serve("127.0.0.1:0", r))
	return x
}

func (x *front) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	dead := x.dead[host]
	x.mu.Unlock()
	if dead {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection refused")}
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

// ask sends one request; the answer is the pod's address.
func (x *front) ask(f *skipperpb.Function, body string) (status int, answer string) {
	x.w.t.Helper()
	req, err := http.NewRequestWithContext(x.w.t.Context(), http.MethodPost, x.url, strings.NewReader(body))
	if err != nil {
		x.w.t.Fatal(err)
	}
	req.Header.Set("X-Skipper-Function", string(fn.Marshal(f)))
	r, err := x.http.Do(req)
	if err != nil {
		x.w.t.Error(err)
		return 0, ""
	}
	defer func() { _ = r.Body.Close() }()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		x.w.t.Error(err)
	}
	return r.StatusCode, string(b)
}

// answerAddress is a function: it says where it runs, and what it was sent.
func answerAddress(w http.ResponseWriter, r *http.Request) {
	addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	host, _, _ := net.SplitHostPort(addr.String())
	body, _ := io.ReadAll(r.Body)
	_, _ = fmt.Fprint(w, host, " ", string(body), " ", r.Header.Get("X-Skipper-Function"))
}

// A router that knows only the contract: cold, warm, retry with exclusion,
// oneshot, and what it no longer uses is given back.
func TestRouterThatKnowsOnlyTheContract(t *testing.T) {
	w := newWorld(t, options{pool: 10, controllers: 3, args: append([]string{
		"--heartbeat-timeout=5s", "--hpa-downscale-stabilization=1s",
	}, quick...)})
	w.pods.Serve = http.HandlerFunc(answerAddress)
	x := newFront(w)
	f := w.function("tenant")

	status, cold := x.ask(f, "hello")
	if status != http.StatusOK || !strings.HasSuffix(cold, " hello ") {
		t.Fatalf("cold: %d %q, want the pod's answer, without our header", status, cold)
	}
	for range 6 { // whichever replica is asked
		if status, warm := x.ask(f, "hello"); status != http.StatusOK || warm != cold {
			t.Errorf("warm: %d %q, want %q", status, warm, cold)
		}
	}
	if n := len(w.pods.Accepted()); n != 1 {
		t.Errorf("%d assignments, want 1", n)
	}

	ip, _, _ := strings.Cut(cold, " ")
	x.mu.Lock()
	x.dead[ip] = true
	x.mu.Unlock()
	status, other := x.ask(f, "again")
	if status != http.StatusOK || strings.HasPrefix(other, ip+" ") || !strings.HasSuffix(other, " again ") {
		t.Errorf("retry: %d %q, want an answer from another pod than %s", status, other, ip)
	}

	x.oneshots(5)
	if status, _ := x.ask(&skipperpb.Function{Namespace: w.namespace, Deployment: "nowhere", Tenant: "t", Scale: f.GetScale()}, ""); status != http.StatusNotFound {
		t.Errorf("unknown deployment: %d, want 404", status)
	}
	w.eventually("what is not used is given back", func() (bool, string) {
		n := len(w.list("skipper/tenant", ""))
		return n == 0, fmt.Sprint(n, " pods are claimed")
	})
}

// oneshots sends n requests at once; each has a pod of its own, deleted after
// the answer.
func (x *front) oneshots(n int) {
	x.w.t.Helper()
	f := x.w.function("oneshot")
	f.Oneshot = true
	answers := make(chan string, n)
	for range n {
		go func() {
			status, answer := x.ask(f, "")
			if status != http.StatusOK {
				x.w.t.Errorf("oneshot: %d %q", status, answer)
			}
			answers <- answer
		}()
	}
	seen := map[string]bool{}
	for range n {
		seen[<-answers] = true
	}
	if len(seen) != n {
		x.w.t.Errorf("%d oneshots were answered by %d pods", n, len(seen))
	}
	x.w.eventually("oneshots are deleted", func() (bool, string) {
		left := len(x.w.list("skipper/tenant=oneshot", ""))
		return left == 0, fmt.Sprint(left)
	})
}
