package router

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	skipperpb "skipper/proto"
)

// controller answers with its instances in turn, leaving excluded ones out.
type controller struct {
	skipperpb.ControllerServiceClient
	err error

	mu        sync.Mutex
	instances []*skipperpb.Instance
	excluded  []string
	released  []string
	beats     []uint32
}

func (c *controller) GetInstance(_ context.Context, r *skipperpb.GetInstanceRequest, _ ...grpc.CallOption) (*skipperpb.GetInstanceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	c.excluded = r.GetExcludeInstanceNames()
	return &skipperpb.GetInstanceResponse{Instance: c.instances[min(len(c.excluded), len(c.instances)-1)]}, nil
}

func (c *controller) ReleaseInstance(_ context.Context, r *skipperpb.ReleaseInstanceRequest, _ ...grpc.CallOption) (*skipperpb.ReleaseInstanceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = append(c.released, r.GetInstance().GetName())
	return &skipperpb.ReleaseInstanceResponse{}, nil
}

func (c *controller) Heartbeat(_ context.Context, r *skipperpb.HeartbeatRequest, _ ...grpc.CallOption) (*skipperpb.HeartbeatResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.beats = append(c.beats, r.GetHeartbeats()[0].GetInFlightRequests())
	return &skipperpb.HeartbeatResponse{}, nil
}

// pods answers for all addresses but "dead:80".
type pods struct{}

func (pods) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == "dead:80" {
		_ = r.Body.Close()
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	body, err := io.ReadAll(r.Body)
	answer := r.URL.Host + " for " + r.Host + ": " + string(body) + r.Header.Get(functionHeader)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer))}, err
}

func ask(r *Router, header string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	in := httptest.NewRequest(http.MethodPost, "http://shop.example/", strings.NewReader("hello"))
	in.Header.Set(functionHeader, header)
	r.ServeHTTP(w, in)
	return w
}

const oneshot = `{"namespace":"a","deployment":"b","tenant":"c","scale":{"max_instances":2},"oneshot":true}`

func newRouter(c *controller) *Router {
	return New(Config{Controller: c, IP: "10.0.0.1", Transport: pods{}, HoldTimeout: time.Minute, HeartbeatInterval: time.Second})
}

func TestRequestGoesToAnotherInstanceWhereOneIsDead(t *testing.T) {
	c := &controller{instances: []*skipperpb.Instance{{Name: "one", Addr: "dead:80"}, {Name: "two", Addr: "alive:80"}}}
	w := ask(newRouter(c), oneshot)
	if got := w.Body.String(); w.Code != http.StatusOK || got != "alive:80 for shop.example: hello" {
		t.Errorf("answer %d %q", w.Code, got)
	}
	if d := cmp.Diff([]string{"one", "two"}, c.released); d != "" || len(c.excluded) != 1 {
		t.Errorf("excluded %v, released (-want +got):\n%s", c.excluded, d)
	}
}

func TestTriesAreBounded(t *testing.T) {
	c := &controller{instances: []*skipperpb.Instance{{Name: "one", Addr: "dead:80"}}}
	if w := ask(newRouter(c), oneshot); w.Code != http.StatusServiceUnavailable || len(c.released) != maxRoundTrips {
		t.Errorf("answer %d after %d tries, want 503 after %d", w.Code, len(c.released), maxRoundTrips)
	}
}

func TestErrorsBecomeStatuses(t *testing.T) {
	for code, want := range map[codes.Code]int{
		codes.InvalidArgument: 400, codes.NotFound: 404, codes.ResourceExhausted: 429, codes.DeadlineExceeded: 503, codes.Unavailable: 503,
	} {
		if w := ask(newRouter(&controller{err: status.Error(code, "why")}), oneshot); w.Code != want {
			t.Errorf("%s becomes %d, want %d", code, w.Code, want)
		}
	}
	if w := ask(newRouter(&controller{}), "nonsense"); w.Code != http.StatusBadRequest {
		t.Errorf("unreadable header becomes %d, want 400", w.Code)
	}
}

func TestHeartbeatsGoOnForThreeIdleIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &controller{instances: []*skipperpb.Instance{{Name: "one", Addr: "alive:80"}}}
		r := newRouter(c)
		ask(r, oneshot)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
		defer cancel()
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
		if d := cmp.Diff([]uint32{0, 0, 0}, c.beats); d != "" {
			t.Errorf("requests in flight by heartbeat (-want +got):\n%s", d)
		}
	})
}
