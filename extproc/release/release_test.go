package release

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	skipperpb "skipper/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// controller answers with the code that answer says, for the n-th call.
type controller struct {
	answer func(n int) codes.Code

	mu    sync.Mutex
	calls int
}

func (c *controller) ReleaseInstance(context.Context, *skipperpb.ReleaseInstanceRequest, ...grpc.CallOption) (*skipperpb.ReleaseInstanceResponse, error) {
	c.mu.Lock()
	c.calls++
	n := c.calls
	c.mu.Unlock()
	return &skipperpb.ReleaseInstanceResponse{}, status.Error(c.answer(n), "answer")
}

type counts struct{ released, givenUp, dropped int }

type tally struct {
	mu sync.Mutex
	counts
}

func (t *tally) add(n *int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*n++
}

func (t *tally) Released() { t.add(&t.released) }
func (t *tally) GivenUp()  { t.add(&t.givenUp) }
func (t *tally) Dropped()  { t.add(&t.dropped) }

func TestReleases(t *testing.T) {
	tests := []struct {
		name   string
		answer func(n int) codes.Code
		want   counts
		calls  int
	}{
		{"at once", func(int) codes.Code { return codes.OK }, counts{released: 3}, 3},
		{"controller comes back", func(n int) codes.Code {
			if n <= 6 {
				return codes.Unavailable
			}
			return codes.OK
		}, counts{released: 3}, 9},
		{"refused for good", func(int) codes.Code { return codes.InvalidArgument }, counts{givenUp: 3}, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, got := &controller{answer: tt.answer}, &tally{}
				r := Start(c, got, zaptest.NewLogger(t))
				for range 3 {
					r.Add(&skipperpb.Instance{Name: "pod"})
				}
				r.Close(t.Context())
				if got.counts != tt.want || c.calls != tt.calls {
					t.Errorf("%+v in %d calls, want %+v in %d", got.counts, c.calls, tt.want, tt.calls)
				}
			})
		})
	}
}

func TestReleaseGivesUpInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := &tally{}
		r := Start(&controller{answer: func(int) codes.Code { return codes.Unavailable }}, got, zaptest.NewLogger(t))
		start := time.Now()
		r.Add(&skipperpb.Instance{Name: "pod"})
		r.Close(t.Context())
		if took := time.Since(start); got.givenUp != 1 || took < giveUp/2 || took > 2*giveUp {
			t.Errorf("given up %d after %s", got.givenUp, took)
		}
	})
}

func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := &tally{}
		r := Start(&controller{answer: func(int) codes.Code { return codes.Unavailable }}, got, zaptest.NewLogger(t))
		r.Add(&skipperpb.Instance{Name: "pod"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.Close(ctx)
		r.Add(&skipperpb.Instance{Name: "late"})
		r.Close(ctx)
		if got.givenUp != 1 || got.dropped != 1 {
			t.Errorf("given up %d, dropped %d", got.givenUp, got.dropped)
		}
	})
}

func TestRoomIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := &tally{}
		block := make(chan struct{})
		r := Start(&controller{answer: func(int) codes.Code { <-block; return codes.OK }}, got, zaptest.NewLogger(t))
		for range workers {
			r.Add(&skipperpb.Instance{})
		}
		synctest.Wait()
		for range room + 5 {
			r.Add(&skipperpb.Instance{})
		}
		if got.dropped != 5 {
			t.Errorf("%d dropped, want 5", got.dropped)
		}
		close(block)
		r.Close(t.Context())
		if got.released != room+workers {
			t.Errorf("%d released", got.released)
		}
	})
}
