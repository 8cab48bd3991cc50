package drain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHistory(t *testing.T) {
	down := errors.New("refused")
	type seen struct {
		n     int
		err   error
		since time.Duration
	}
	tests := []struct {
		name string
		all  []seen
		want bool
	}{
		{"idle twice, late enough", []seen{{0, nil, 4 * time.Second}, {0, nil, Least}}, true},
		{"idle, but nodes may not know yet", []seen{{0, nil, 0}, {0, nil, time.Second}, {0, nil, Least - 1}}, false},
		{"idle once", []seen{{0, nil, Least}}, false},
		{"busy between", []seen{{0, nil, Least}, {1, nil, Least}, {0, nil, Least}}, false},
		{"no word between", []seen{{0, nil, Least}, {0, down, Least}, {0, nil, Least}}, false},
		{"busy for long", []seen{{3, nil, time.Hour}, {2, nil, time.Hour}}, false},
		{"gone", []seen{{1, nil, 0}, {0, down, 1}, {0, down, 2}, {0, down, 3}, {0, down, 4}}, true},
		{"slow", []seen{{0, down, 1}, {0, down, 2}, {0, down, 3}, {1, nil, 4}, {0, down, 5}}, false},
	}
	for _, tt := range tests {
		var h history
		done, why := false, ""
		for _, s := range tt.all {
			done, why = h.add(s.n, s.err, s.since)
		}
		if done != tt.want || (why != "") != done {
			t.Errorf("%s: %v %q, want %v", tt.name, done, why, tt.want)
		}
	}
}

// admin is Envoy's admin interface.
type admin struct {
	mu     sync.Mutex
	active int
	failed int // calls of healthcheck/fail
	looks  int
}

func (a *admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch r.Method + " " + r.URL.Path {
	case "POST /healthcheck/fail":
		a.failed++
	case "GET /stats":
		a.looks++
		_, _ = fmt.Fprintf(w, `{"stats":[{"name":%q,"value":%d}]}`, active, a.active)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// transport has the handler answer at once, without a network.
type transport struct{ http.Handler }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	t.ServeHTTP(w, r)
	return w.Result(), nil
}

func TestDrainWaitsForWhatIsInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &admin{active: 2}
		d := &Drainer{client: &http.Client{Transport: transport{a}}, base: "http://envoy", log: zap.NewNop()}
		ended := make(chan error, 3)
		for range 3 {
			go func() { ended <- d.Drain(t.Context()) }()
		}
		<-time.After(time.Hour)
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatalf("drained with requests in progress: %v", <-ended)
		}
		a.mu.Lock()
		a.active = 0
		a.mu.Unlock()
		for range 3 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if a.failed != 1 {
			t.Errorf("health checks failed %d times, want once", a.failed)
		}
	})
}

// The first of those who ask may leave at once: the others' drain has begun all the same.
func TestDrainBeginsForAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &admin{}
		d := &Drainer{client: &http.Client{Transport: transport{a}}, base: "http://envoy", log: zap.NewNop()}
		left, leave := context.WithCancel(t.Context())
		leave()
		if err := d.Drain(left); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v for who has left", err)
		}
		if err := d.Drain(t.Context()); err != nil || a.failed != 1 {
			t.Errorf("error %v, health checks failed %d times, want once", err, a.failed)
		}
	})
}

func TestDrainEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Drainer{client: &http.Client{Transport: transport{&admin{active: 1}}}, base: "http://envoy", log: zap.NewNop()}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := d.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}

func TestHookOverASocket(t *testing.T) {
	a := &admin{}
	path := filepath.Join(t.TempDir(), "admin.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: a}} //nolint:gosec // a test's server
	server.Start()
	defer server.Close()
	d := New(path, zap.NewNop())
	defer d.client.CloseIdleConnections()
	for method, want := range map[string]int{http.MethodGet: http.StatusOK, http.MethodPost: http.StatusMethodNotAllowed} {
		w := httptest.NewRecorder()
		d.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/drain", nil))
		if w.Code != want {
			t.Errorf("%s: status %d %s, want %d", method, w.Code, w.Body, want)
		}
	}
	if a.failed != 1 || a.looks < 2 {
		t.Errorf("health checks failed %d times, %d looks", a.failed, a.looks)
	}
}

func FuzzParseActive(f *testing.F) {
	for _, seed := range []string{`{"stats":[{"name":"` + active + `","value":3}]}`, `{"stats":[]}`, `{"stats":[{"histograms":{}}]}`, `[]`, ``, `{"stats":[{"name":"` + active + `","value":-1}]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if n, err := parseActive(body); n < 0 || (err != nil && n != 0) {
			t.Errorf("%d %v", n, err)
		}
	})
}
