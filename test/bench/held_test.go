package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"skipper/test/bench/internal/proc"
)

func heldServer(t *testing.T) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	newHeldBackend().register(mux)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func TestHeldUntilReleased(t *testing.T) {
	const n = 40
	s := heldServer(t)
	crowd := newHeldCrowd(n)
	crowd.open(t.Context(), s.Listener.Addr().String())
	if arrived, err := awaitHeld(t.Context(), s.URL, n); err != nil || arrived != n {
		t.Fatalf("%d are held, %v; want %d", arrived, err, n)
	}
	if _, err := get(t.Context(), s.URL+heldRelease); err != nil {
		t.Fatal(err)
	}
	crowd.finish()
	if failed, how := crowd.failed(); failed != 0 {
		t.Errorf("failed %d: %v", failed, how)
	}
	if left, err := awaitHeld(t.Context(), s.URL, 0); err != nil || left != 0 {
		t.Errorf("%d are held at the end, %v", left, err)
	}
}

// What is refused, cut off, or answered with something else counts as failed.
func TestHeldFailuresAreCounted(t *testing.T) {
	for name, row := range map[string]struct {
		handler http.HandlerFunc
		want    map[string]int
	}{
		"refused": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("x-skipper-reason", "hold_timeout")
				w.WriteHeader(http.StatusServiceUnavailable)
			},
			map[string]int{"answer 503 Service Unavailable hold_timeout": 4},
		},
		"not what was sent": {
			func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") },
			map[string]int{"answer 200 OK ": 2, `answer is "hello\n"`: 2},
		},
		"cut off": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			map[string]int{"read answer: unexpected EOF": 4},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(row.handler)
			defer s.Close()
			crowd := newHeldCrowd(4)
			crowd.open(t.Context(), s.Listener.Addr().String())
			crowd.finish()
			n, got := crowd.failed()
			if d := cmp.Diff(row.want, got); n != 4 || d != "" {
				t.Errorf("%d failed (-want +got):\n%s", n, d)
			}
		})
	}
}

func TestOverflowsThatAreNotZero(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("filter") == "overflow" {
			_, _ = io.WriteString(w, "a.overflow: 0\nb.overflow: 2\n")
		}
	}))
	defer s.Close()
	got, err := overflows(t.Context(), s.Listener.Addr().String())
	if d := cmp.Diff([]string{"b.overflow: 2"}, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

func TestHeldTable(t *testing.T) {
	o := options{held: 1000, heldFor: time.Minute}
	cs := []*contestant{{name: "x", cost: []*proc.Process{{Name: "envoy"}, {Name: "extproc"}}}}
	got := heldTable(o, cs, []heldResult{{
		before: heldReading{[]uint64{50e6, 20e6}, 100}, held: heldReading{[]uint64{110e6, 34e6}, 1100}, after: heldReading{[]uint64{90e6, 30e6}, 101},
		arrived: 1000, stayed: 999, failed: 1, how: map[string]int{"cut": 1},
	}})
	for _, want := range []string{
		"| x | envoy | 50.0 | 110.0 | 90.0 | 60.0 |  |",
		"| x | extproc | 20.0 | 34.0 | 30.0 | 14.0 | 100 / 1100 / 101 |",
		"1000 came to the backend and 999 were there after 1m0s; failed 1 map[cut:1]",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
