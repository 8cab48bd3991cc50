package invoke

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
	"skipper/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func function() *skipperpb.Function {
	return &skipperpb.Function{Namespace: "prod", Deployment: "echo", Tenant: "acme", Scale: &skipperpb.Scale{MaxInstances: 3}}
}

// gateway answers with what it was asked, as the real one's functions do.
func gateway(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := fn.Parse([]byte(r.Header.Get("X-Skipper-Function")))
		if err != nil || !proto.Equal(got, function()) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		switch r.URL.Path {
		case "/full":
			w.Header().Set("x-skipper-reason", "hold_queue_full")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/elsewhere":
			http.Redirect(w, r, "/full", http.StatusFound)
		case "/cut":
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "half")
		default:
			body, _ := io.ReadAll(r.Body)
			_, _ = io.WriteString(w, r.Method+" "+r.Host+" "+r.Header.Get("X-Mine")+" "+string(body))
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestDo(t *testing.T) {
	t.Parallel()
	url := gateway(t)
	for _, row := range []struct {
		path   string
		status int
		reason string
		body   string
		fails  bool
	}{
		{"/hello", 200, "", "POST example.org yes data", false},
		{"/full", 429, "hold_queue_full", "", false},
		{"/elsewhere", 302, "", "", false},
		{"/cut", 200, "", "half", true},
	} {
		var body bytes.Buffer
		got, err := Do(t.Context(), Request{
			URL: url + row.path, Method: http.MethodPost, Function: string(fn.Marshal(function())), Body: strings.NewReader("data"),
			Header: http.Header{"Host": {"example.org"}, "X-Mine": {"yes"}},
		}, &body)
		if (err != nil) != row.fails || got.Status != row.status || got.Reason != row.reason || body.String() != row.body {
			t.Errorf("%s: %+v, body %q, %v", row.path, got, body.String(), err)
		}
		if s := got.Stages; s.Total <= 0 || s.Connect < 0 || s.Connect > s.Total || s.FirstByte > s.Total || s.TLS != 0 || s.DNS != 0 {
			t.Errorf("%s: stages %+v", row.path, s)
		}
	}
}

func TestDoSaysThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	url := s.URL
	s.Close()
	for _, u := range []string{url, "http://[::1", "nonsense://x"} {
		if _, err := Do(t.Context(), Request{URL: u, Method: http.MethodGet, Function: string(fn.Marshal(function()))}, io.Discard); err == nil {
			t.Errorf("%s: no error", u)
		}
	}
}

// pod is an instance of the function, or on its way to be one.
func pod(name string, ready bool, k fn.Key) pool.Pod {
	p := pool.Pod{Name: name, UID: name, IP: "10.0.0.1", Port: 80, Protocol: xds.HTTP1, Phase: corev1.PodRunning, Ready: true, Marked: true, Key: k, Function: function(), AssignedAt: time.Unix(1, 0)}
	if ready {
		p.ReadyAt = time.Unix(2, 0)
	}
	return p
}

func TestJudgeStart(t *testing.T) {
	t.Parallel()
	k := fn.KeyOf(function())
	once := k
	once.Oneshot = true
	other := k
	other.Tenant = "zenith"
	a, b, starting, strange := pod("a", true, k), pod("b", true, k), pod("a", false, k), pod("a", true, other)
	type pods = []pool.Pod
	for _, row := range []struct {
		name          string
		key           fn.Key
		before, after pods
		kind, who     string
	}{
		{"one was there", k, pods{a}, pods{a}, Warm, "a"},
		{"two were there", k, pods{a, b}, pods{a, b}, Warm, ""},
		{"none was there", k, nil, pods{a}, Cold, "a"},
		{"another tenant's was", k, pods{strange}, pods{strange, b}, Cold, "b"},
		{"one was starting", k, pods{starting}, pods{a}, Cold, "a"},
		{"nothing was seen", k, pods{strange}, pods{strange}, Unknown, ""},
		{"oneshot, pod gone again", once, nil, nil, Cold, ""},
		{"oneshot, beside another", once, pods{pod("x", true, once)}, pods{pod("x", true, once), pod("y", true, once)}, Cold, "y"},
	} {
		if got := JudgeStart(row.key, row.before, row.after); got.Kind != row.kind || got.Instance != row.who || got.Why == "" {
			t.Errorf("%s: %+v", row.name, got)
		}
	}
}

func TestInForceIsTheNewest(t *testing.T) {
	t.Parallel()
	k := fn.KeyOf(function())
	old, young := pod("a", true, k), pod("b", false, k)
	young.AssignedAt = young.AssignedAt.Add(time.Hour)
	young.Function = proto.CloneOf(function())
	young.Function.Metadata = "v2"
	if got := InForce(k, []pool.Pod{old, young, {}}); got.GetMetadata() != "v2" {
		t.Errorf("in force is %v", got)
	}
	if got := InForce(k, nil); got != nil {
		t.Errorf("in force is %v", got)
	}
}
