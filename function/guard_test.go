package function_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skipper/function"
)

// answer is what a caller can tell about who answered.
type answer struct {
	Status      int
	Misdirected string
	Body        string
}

// author is the handler behind the package; it answers 421 by itself, to show that such an answer stays its own.
func author() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusMisdirectedRequest)
		_, _ = io.WriteString(w, "author")
	})
}

func ask(t *testing.T, h http.Handler, method, path string, instances ...string) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
	if len(instances) > 0 {
		r.Header[function.HeaderInstance] = instances
	}
	w := serve(h, r)
	return answer{w.Code, w.Header().Get(function.HeaderMisdirected), w.Body.String()}
}

func TestGuard(t *testing.T) {
	free := func(reason string) answer { return answer{421, "1", "misdirected: " + reason + "\n"} }
	passed := answer{421, "", "author"}
	healthy := answer{200, "", "ok\n"}
	noTenant := free("this pod has no tenant yet")
	noHeader := free("the request names no instance: it did not come through Skipper")
	other := free("the request is for another instance")
	several := free("the request names several instances")
	rows := []struct {
		name      string
		assigned  bool
		direct    bool
		method    string
		path      string
		instances []string
		want      answer
	}{
		{"before assignment", false, false, "GET", "/", nil, noTenant},
		{"before assignment, with our UID", false, false, "GET", "/", []string{podUID}, noTenant},
		{"before assignment, direct", false, true, "GET", "/", nil, noTenant},
		{"before assignment, probe", false, false, "GET", "/healthz", nil, healthy},
		{"before assignment, health path by the proxy", false, false, "GET", "/healthz", []string{podUID}, noTenant},
		{"ours", true, false, "GET", "/", []string{podUID}, passed},
		{"ours, any method", true, false, "DELETE", "/x?y=z", []string{podUID}, passed},
		{"another's", true, false, "GET", "/", []string{"other"}, other},
		{"another's, direct allowed", true, true, "GET", "/", []string{"other"}, other},
		{"another's at the health path", true, false, "GET", "/healthz", []string{"other"}, other},
		{"empty", true, true, "GET", "/", []string{""}, other},
		{"ours twice", true, false, "GET", "/", []string{podUID, podUID}, several},
		{"ours and another's", true, true, "GET", "/", []string{podUID, "other"}, several},
		{"no header", true, false, "GET", "/", nil, noHeader},
		{"no header, direct allowed", true, true, "GET", "/", nil, passed},
		{"probe", true, false, "GET", "/healthz", nil, healthy},
		{"probe by HEAD", true, false, "HEAD", "/healthz", nil, healthy},
		{"post to the health path is no probe", true, false, "POST", "/healthz", nil, noHeader},
		{"health path by the proxy is the author's", true, false, "GET", "/healthz", []string{podUID}, passed},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			cfg := config()
			cfg.AllowDirect = row.direct
			pod := newPod(t, cfg)
			if row.assigned {
				if code := assign(t, pod, "a", functionFor("a", "")); code != http.StatusOK {
					t.Fatalf("assign: status %d", code)
				}
			}
			got := ask(t, pod.Handler(author()), row.method, row.path, row.instances...)
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

// A pod that could not learn its UID has none that a header could equal.
func TestGuardWithoutUIDTrustsNoHeader(t *testing.T) {
	cfg := config()
	cfg.PodUID, cfg.AcceptAnyToken = "", true
	pod := newPod(t, cfg)
	assign(t, pod, "a", functionFor("a", ""))
	for _, instance := range []string{"", podUID} {
		if got := ask(t, pod.Handler(author()), "GET", "/", instance); got.Misdirected != "1" {
			t.Errorf("instance %q: %+v", instance, got)
		}
	}
}

func TestHealthCallbackDecides(t *testing.T) {
	cfg := config()
	cfg.Health = func(context.Context) error { return errors.New("warming up") }
	want := answer{503, "", "unhealthy: warming up\n"}
	if diff := cmp.Diff(want, ask(t, newPod(t, cfg).Handler(author()), "GET", "/healthz")); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestEndpointsAloneRefuseNothing(t *testing.T) {
	h := newPod(t, config()).Endpoints(author())
	want := []answer{{421, "", "author"}, {421, "", "author"}, {200, "", "ok\n"}}
	got := []answer{ask(t, h, "GET", "/"), ask(t, h, "GET", "/", "other"), ask(t, h, "GET", "/healthz")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

func TestPathsAreConfigurable(t *testing.T) {
	cfg := config()
	cfg.AssignPath, cfg.HealthPath = "/a", "/h"
	h := newPod(t, cfg).Endpoints(author())
	want := []answer{{421, "", "author"}, {421, "", "author"}, {200, "", "ok\n"}, {405, "", "method not allowed: assignments are posted, not \"GET\"\n"}}
	got := []answer{
		ask(t, h, "GET", function.DefaultAssignPath), ask(t, h, "GET", function.DefaultHealthPath),
		ask(t, h, "GET", "/h"), ask(t, h, "GET", "/a"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

// The guard is in every request's way, so what it adds is pinned: nothing on the heap.
func TestGuardDoesNotAllocate(t *testing.T) {
	pod := newPod(t, config())
	assign(t, pod, "a", functionFor("a", ""))
	h := pod.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	r.Header.Set(function.HeaderInstance, podUID)
	w := httptest.NewRecorder()
	if n := testing.AllocsPerRun(100, func() { h.ServeHTTP(w, r) }); n != 0 {
		t.Errorf("%v allocations per request, want 0", n)
	}
}
