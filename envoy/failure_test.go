package envoy_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skipper/envoy"
	"skipper/envoy/envoytest"
)

// outlastMessageTimeout takes at least as long as extproc may be silent: a
// request of which it says nothing is given up only then.
func (g *gateway) outlastMessageTimeout(t *testing.T) {
	t.Helper()
	want := told{503, []string{"no_instance"}, []string{"1"}}
	if diff := cmp.Diff(want, tell(g.do(t, g.request(t, http.MethodGet, "stuck", nil)))); diff != "" {
		t.Errorf("answer when extproc says nothing (-want +got):\n%s", diff)
	}
}

func TestHeldRequestOutlastsTheMessageTimeout(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	defer close(g.processor.stuck)
	const length = 5 << 20 // more than Envoy keeps of a body
	g.serverPod(t, "held", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, _ := io.Copy(io.Discard, r.Body); n != length {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	got := make(chan answer, 1)
	req := g.request(t, http.MethodPost, "held", io.LimitReader(zeros{}, length))
	go func() {
		res, err := g.client.Do(req)
		if err != nil {
			got <- answer{}
			return
		}
		defer res.Body.Close()
		got <- answer{status: res.StatusCode}
	}()
	envoytest.Eventually(t, "the request is held", func() bool {
		_, text, err := g.Admin(t.Context(), http.MethodGet, "/stats?filter=http.ingress.downstream_rq_active")
		return err == nil && strings.Contains(text, ": 1")
	})
	g.outlastMessageTimeout(t)
	g.outlastMessageTimeout(t)
	close(g.processor.hold)
	if a := <-got; a.status != http.StatusOK {
		t.Errorf("held request ended with status %d", a.status)
	}
}

func TestKilledExtprocCutsNothingThatRuns(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	more := make(chan struct{})
	g.serverPod(t, "fn", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		w.(http.Flusher).Flush()
		<-more
		_, _ = io.WriteString(w, "last\n")
	}))
	res, err := g.client.Do(g.request(t, http.MethodGet, "fn", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	if line, err := in.ReadString('\n'); err != nil || line != "first\n" {
		t.Fatalf("first line is %q, %v", line, err)
	}
	g.extproc.Stop()
	want := told{503, []string{"no_instance"}, []string{"1"}}
	if diff := cmp.Diff(want, tell(g.do(t, g.request(t, http.MethodGet, "fn", nil)))); diff != "" {
		t.Errorf("new request (-want +got):\n%s", diff)
	}
	close(more)
	if rest, err := io.ReadAll(in); err != nil || string(rest) != "last\n" {
		t.Errorf("the running answer ended with %q, %v", rest, err)
	}
}

func TestStoppedControllerChangesNothing(t *testing.T) {
	t.Parallel()
	g := startGateway(t, nil)
	g.serverPod(t, "fn", http.HandlerFunc(headersPod))
	g.plane.server.Stop()
	envoytest.Eventually(t, "Envoy has lost the controller", func() bool {
		_, text, err := g.Admin(t.Context(), http.MethodGet, "/stats?filter=control_plane.connected_state")
		return err == nil && strings.Contains(text, ": 0")
	})
	if a := g.do(t, g.request(t, http.MethodGet, "fn", nil)); a.status != http.StatusOK {
		t.Errorf("status is %d without a controller", a.status)
	}
	if a := g.readyPort(t, http.MethodGet, "/ready"); a.status != http.StatusOK {
		t.Errorf("/ready answers %d without a controller", a.status)
	}
}

func TestControllerIsFoundAmongAllAddressesOfItsName(t *testing.T) {
	t.Parallel()
	plane := startControlPlane(t) // on one of localhost's two addresses
	cfg := testConfig(t, plane.addr)
	cfg.ControllerHost = "localhost"
	launch(t, cfg).WaitReady(t)
}

func TestConnectionsOverTheBoundAreClosed(t *testing.T) {
	t.Parallel()
	g := startGateway(t, func(c *envoy.Config) { c.MaxConnections = 1 })
	g.do(t, g.request(t, http.MethodGet, "nobody", nil)) // stays open
	if text := raw(t, g, ""); text != "" {
		t.Errorf("second connection was answered %q", text)
	}
	if a := g.readyPort(t, http.MethodGet, "/ready"); a.status != http.StatusOK {
		t.Errorf("/ready answers %d when all connections are taken", a.status)
	}
}
