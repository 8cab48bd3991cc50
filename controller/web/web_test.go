package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	skipperpb "skipper/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func fnOf(tenant string) *skipperpb.Function {
	return &skipperpb.Function{
		Namespace: "prod", Deployment: "echo", Tenant: tenant, Metadata: "a-secret-of-the-tenant",
		Scale: &skipperpb.Scale{MinInstances: 1, MaxInstances: 5, TargetInFlightRequests: 10},
	}
}

func world() *skipperpb.ClusterState {
	states := []skipperpb.InstanceState{
		skipperpb.InstanceState_INSTANCE_STATE_READY, skipperpb.InstanceState_INSTANCE_STATE_READY,
		skipperpb.InstanceState_INSTANCE_STATE_ASSIGNED, skipperpb.InstanceState_INSTANCE_STATE_DRAINING,
	}
	var instances []*skipperpb.Instance
	for i, s := range states {
		instances = append(instances, &skipperpb.Instance{Name: "echo-" + string(rune('a'+i)), State: s, InFlightRequests: uint32(i)})
	}
	return &skipperpb.ClusterState{
		PodIp: "10.0.0.1", ObservedAt: timestamppb.New(noon), Partial: true,
		Replicas: []*skipperpb.ReplicaState{
			{Ip: "10.0.0.1", Synced: true, RingMembers: []string{"10.0.0.1", "10.0.0.2"}, ViewAge: durationpb.New(1500 * time.Millisecond)},
			{Ip: "10.0.0.2", UnreachableReason: "no answer within 2s"},
		},
		Pools: []*skipperpb.PoolState{{Namespace: "prod", Deployment: "echo", ReadyPods: 3, WaitingCallers: 2}},
		Supervisors: []*skipperpb.SupervisorState{
			{Function: fnOf("calm"), InFlightRequests: 1, Decision: &skipperpb.ScaleDecision{DesiredInstances: 1, Message: "in use, so at least 1"}},
			{Function: fnOf("busy"), InFlightRequests: 40, Instances: instances, Decision: &skipperpb.ScaleDecision{
				DesiredInstances: 4, Reason: skipperpb.ScaleReason_SCALE_REASON_IN_FLIGHT_REQUESTS, Message: "40 in flight / target 10 = 4",
			}},
		},
		Events: []*skipperpb.Event{
			{Sequence: 1, ControllerIp: "10.0.0.1", Function: fnOf("calm"), Type: skipperpb.EventType_EVENT_TYPE_POD_ASSIGNED},
			{Sequence: 2, ControllerIp: "10.0.0.1", Function: fnOf("busy"), Type: skipperpb.EventType_EVENT_TYPE_SCALE_UP, Severity: skipperpb.EventSeverity_EVENT_SEVERITY_INFO, Message: "3 to 4"},
		},
	}
}

func serve(t *testing.T, state State) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	New(state).Register(mux)
	s := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.CloseClientConnections() // streams end by themselves only when their pages do
		s.Close()
	})
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return s
}

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var text strings.Builder
	if _, err := bufio.NewReader(resp.Body).WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	return resp, text.String()
}

func TestViewSaysWhatTheStateSays(t *testing.T) {
	c, age := viewOf(world(), false).narrowed(""), 1.5
	bounds := scale{Min: 1, Max: 5, InFlight: 10}
	for _, row := range []struct {
		what      string
		got, want any
	}{
		{"functions, the busiest first and without instances", c.Functions, []function{
			{
				Namespace: "prod", Deployment: "echo", Tenant: "busy", Ready: 2, Assigned: 1, Draining: 1, InFlight: 40, Scale: bounds,
				Decision: &decision{Desired: 4, Reason: "in flight requests", Message: "40 in flight / target 10 = 4"},
			},
			{
				Namespace: "prod", Deployment: "echo", Tenant: "calm", InFlight: 1, Scale: bounds,
				Decision: &decision{Desired: 1, Reason: "none", Message: "in use, so at least 1"},
			},
		}},
		{"their number", c.FunctionsTotal, 2},
		{"events, the newest first", c.Events, []event{
			{ID: "10.0.0.1#2", Type: "scale up", Severity: "info", Function: "prod/echo/busy", Message: "3 to 4"},
			{ID: "10.0.0.1#1", Type: "pod assigned", Severity: "unspecified", Function: "prod/echo/calm"},
		}},
		{"controllers, a silent one among them", c.Controllers, []controller{
			{IP: "10.0.0.1", Synced: true, Ring: []string{"10.0.0.1", "10.0.0.2"}, ViewAge: &age},
			{IP: "10.0.0.2", Unreachable: "no answer within 2s", Ring: []string{}},
		}},
		{"whether that is all", c.Partial, true},
	} {
		if diff := cmp.Diff(row.want, row.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.what, diff)
		}
	}
}

func TestFilterTakesPartsOfNames(t *testing.T) {
	for filter, want := range map[string]int{"": 2, "busy": 1, "BUSY": 1, "echo/c": 1, "prod/": 2, "nobody": 0} {
		c := viewOf(world(), false).narrowed(filter)
		if len(c.Functions) != want || len(c.Events) != want {
			t.Errorf("%q leaves %d functions and %d events, want %d", filter, len(c.Functions), len(c.Events), want)
		}
	}
}

func TestViewsAreBounded(t *testing.T) {
	s := &skipperpb.ClusterState{}
	for range maxFunctions + 7 {
		s.Supervisors = append(s.Supervisors, &skipperpb.SupervisorState{Function: fnOf("t")})
		s.Events = append(s.Events, &skipperpb.Event{})
	}
	if c := viewOf(s, false).narrowed(""); len(c.Functions) != maxFunctions || c.FunctionsTotal != maxFunctions+7 || len(c.Events) != maxEvents {
		t.Errorf("%d of %d functions, %d events", len(c.Functions), c.FunctionsTotal, len(c.Events))
	}
}

// What is a tenant's alone reaches no page.
func TestMetadataIsNotShown(t *testing.T) {
	s := serve(t, func(context.Context, *skipperpb.GetClusterStateRequest) (*skipperpb.ClusterState, error) {
		return world(), nil
	})
	for _, path := range []string{"/ui/api/cluster", "/ui/api/function?namespace=prod&deployment=echo&tenant=busy"} {
		resp, text := get(t, s.URL+path)
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/json" || !json.Valid([]byte(text)) {
			t.Errorf("%s: %s %s", path, resp.Status, text)
		}
		if strings.Contains(text, "secret") {
			t.Errorf("%s shows a function's metadata", path)
		}
	}
}

func TestBadQuestionsAreRefused(t *testing.T) {
	s := serve(t, func(context.Context, *skipperpb.GetClusterStateRequest) (*skipperpb.ClusterState, error) {
		t.Error("a bad question was asked of the controllers")
		return nil, errors.New("no")
	})
	for path, want := range map[string]int{
		"/ui/api/function":                                   400,
		"/ui/api/function?namespace=a&deployment=b":          400,
		"/ui/api/cluster?filter=" + strings.Repeat("x", 301): 400,
		"/ui/api/other":                                      404,
		"/ui/nothing.js":                                     404,
		"/elsewhere":                                         404,
		"/ui/%2e%2e/web.go":                                  404,
	} {
		if resp, text := get(t, s.URL+path); resp.StatusCode != want {
			t.Errorf("%s: %s %q, want %d", path, resp.Status, text, want)
		}
	}
	resp, err := http.Post(s.URL+"/ui/api/cluster", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", resp.Status)
	}
}

func TestPagesRunNothingForeign(t *testing.T) {
	s := serve(t, nil)
	for path, kind := range map[string]string{"/": "text/html", "/ui/app.js": "text/javascript", "/ui/parts.js": "text/javascript", "/ui/style.css": "text/css"} {
		resp, text := get(t, s.URL+path)
		if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), kind) || len(text) < 500 {
			t.Errorf("%s: %s, %s, %d bytes", path, resp.Status, resp.Header.Get("Content-Type"), len(text))
		}
		if !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'") {
			t.Errorf("%s has the policy %q", path, resp.Header.Get("Content-Security-Policy"))
		}
		if strings.Contains(text, "http://") && path != "/ui/parts.js" || strings.Contains(text, "https://") || strings.Contains(text, "innerHTML") {
			t.Errorf("%s refers to another host, or writes HTML", path)
		}
	}
}

func TestStateIsAskedOnceForAll(t *testing.T) {
	var asked atomic.Int32
	u := New(func(context.Context, *skipperpb.GetClusterStateRequest) (*skipperpb.ClusterState, error) {
		asked.Add(1)
		return world(), nil
	})
	q, _ := clusterQuestion(nil)
	for range 10 {
		if _, err := u.answer(t.Context(), q, noon); err != nil {
			t.Fatal(err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times within a second, want once", n)
	}
	if _, err := u.answer(t.Context(), q, noon.Add(fresh)); err != nil || asked.Load() != 2 {
		t.Errorf("asked %d times in two seconds (%v), want twice", asked.Load(), err)
	}
}

func TestStreamTellsStateAndTrouble(t *testing.T) {
	var fails atomic.Bool
	s := serve(t, func(_ context.Context, r *skipperpb.GetClusterStateRequest) (*skipperpb.ClusterState, error) {
		if fails.Load() {
			return nil, errors.New("no controller answers")
		}
		return world(), nil
	})
	first := listen(t, s, "/ui/api/cluster")
	if first.kind != "state" || !strings.Contains(first.data, `"tenant":"busy"`) {
		t.Errorf("%+v, want the state", first)
	}
	fails.Store(true)
	if e := listen(t, s, "/ui/api/function?namespace=prod&deployment=echo&tenant=busy"); e.kind != "trouble" || !strings.Contains(e.data, "no controller answers") {
		t.Errorf("%+v, want the trouble", e)
	}
}

func TestStreamsAreBounded(t *testing.T) {
	u := New(func(context.Context, *skipperpb.GetClusterStateRequest) (*skipperpb.ClusterState, error) {
		return world(), nil
	})
	mux := http.NewServeMux()
	u.Register(mux)
	for range maxStreams {
		u.streams <- struct{}{}
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/ui/api/cluster", nil)
	r.Header.Set("Accept", "text/event-stream")
	mux.ServeHTTP(w, r)
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s, want 429", w.Code, w.Body)
	}
}

type told struct{ kind, data string }

// listen returns the first event of a stream, and leaves it.
func listen(t *testing.T, s *httptest.Server, path string) (e told) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() && lines.Text() != "" {
		if kind, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			e.kind = kind
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			e.data = data
		}
	}
	return e
}
