//go:build e2e

package e2e_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// Many callers of one cold function cause one claim, not one each.
func TestParallelColdRequestsClaimOnePod(t *testing.T) {
	t.Parallel()
	const requests = 30
	p := newWorld(t).newPool(t, 3)
	answers := atOnce(requests, func(int) answer { return p.get(t.Context(), p.function("a"), "/") })
	if n := distinct(podsOf(t, answers)); n != 1 {
		t.Errorf("%d requests were served by %d pods, want 1", requests, n)
	}
	p.waitFull(t)
	p.wantClaims(t, p.tenant("a"), 1)
}

func TestOneshotGetsAPodForEachRequest(t *testing.T) {
	t.Parallel()
	const requests = 5
	p := newWorld(t).newPool(t, 3)
	answers := atOnce(requests, func(int) answer { return p.get(t.Context(), p.oneshot("a"), "/") })
	uids := podsOf(t, answers)
	if n := distinct(uids); n != requests {
		t.Errorf("%d oneshot requests were served by %d pods", requests, n)
	}
	for _, uid := range uids {
		p.waitGone(t, uid)
	}
	p.waitFull(t)
	p.wantClaims(t, p.tenant("a"), requests)
}

// An answer of the function that is an error ends the pod too.
func TestOneshotIsDeletedAfterAnError(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 1)
	a := p.get(t.Context(), p.oneshot("a"), "/status/500")
	if a.status != http.StatusInternalServerError || a.reason() != "" {
		t.Errorf("want the function's own 500: %s", a)
	}
	p.waitGone(t, types.UID(a.header.Get("X-Echo-Uid")))
	p.wantClaims(t, p.tenant("a"), 1)
}

// A client that leaves in the middle of an answer gives the pod back like one that stays.
func TestOneshotIsDeletedWhenTheClientLeaves(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 2)
	t.Run("in a stream", func(t *testing.T) { leaveStream(t, p) })
	t.Run("before the answer", func(t *testing.T) { leaveSlow(t, p) })
}

// leaveStream hangs up after the first of endless events.
func leaveStream(t *testing.T, p *pool) {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	resp, err := p.http.Do(p.request(ctx, http.MethodGet, p.oneshot("stream"), "/sse?events=0&every=100ms", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatalf("status %d, read first event: %q, %v", resp.StatusCode, line, err)
	}
	leave()
	p.waitGone(t, types.UID(resp.Header.Get("X-Echo-Uid")))
}

// leaveSlow hangs up while the pod, which has been claimed for it, is an hour away from its answer.
func leaveSlow(t *testing.T, p *pool) {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	done := make(chan answer, 1)
	go func() { done <- p.get(ctx, p.oneshot("slow"), "/slow?for=1h") }()
	var uid types.UID
	eventually(t, "a pod that has accepted the slow request's assignment", func() (bool, string) {
		for _, e := range p.pods.claimed(p.tenant("slow")) {
			uid = e.pod.UID
			return e.pod.Annotations[readyAtNote] != "", p.pods.String()
		}
		return false, p.pods.String()
	})
	leave()
	if a := <-done; a.err == nil {
		t.Errorf("an answer came an hour early: %s", a)
	}
	p.waitGone(t, uid)
}

// A client that leaves while its request is held for a pod leaves nothing behind: the pod that comes later stays free.
func TestClientThatLeavesTheQueueClaimsNothingLater(t *testing.T) {
	t.Parallel()
	p := newWorld(t).newPool(t, 0)
	p.waitKnown(t, "b")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	body := &asked{read: make(chan struct{}), end: ctx.Done()}
	r := p.request(ctx, http.MethodPost, p.oneshot("a"), "/", body)
	r.Header.Set("Expect", "100-continue")
	left := make(chan answer, 1)
	go func() { left <- p.send(r) }()
	<-body.read
	leave()
	if a := <-left; a.err == nil {
		t.Errorf("a request without a pod was answered: %s", a)
	}
	p.scale(t, 1)
	p.waitFull(t)
	mustEcho(t, p.get(t.Context(), p.function("b"), "/"))
	p.waitFull(t)
	p.wantClaims(t, "", 1)
}

// asked is a body that tells when it is asked for, which with Expect: 100-continue is when the gateway has the request
// in its hands, and that never comes.
type asked struct {
	read chan struct{}
	end  <-chan struct{}
	once sync.Once
}

func (a *asked) Read([]byte) (int, error) {
	a.once.Do(func() { close(a.read) })
	<-a.end
	return 0, io.ErrUnexpectedEOF
}
