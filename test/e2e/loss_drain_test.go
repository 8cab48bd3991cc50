//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	skipperpb "skipper/proto"
	"skipper/proto/identity"
)

// One request alone, longer than the timeouts that end a function, an assignment or a wait, keeps its pod: a silent
// one, a stream and a WebSocket. In the long form it is longer than every timeout there is.
func patientStory(t *testing.T, w *world) {
	lasting := 35 * time.Second
	if lossExtent(t).requests >= 20_000 {
		lasting = 6 * time.Minute
	}
	p := w.newPool(t, 3)
	functions := map[kind]*skipperpb.Function{}
	tl := newTally()
	for _, k := range []kind{silent, stream, socket} {
		functions[k] = p.function(string(k))
		one := mix{senders: map[kind]int{k: 1}, shortest: lasting, once: true}
		defer startTraffic(t, p, tl, []*skipperpb.Function{functions[k]}, one).wait()
	}
	eventuallyFor(t, lasting+patience, "the ends of all requests", func() (bool, string) { return tl.count() == len(functions), "" })
	tl.wantNoLoss(t, never)
	p.waitForgotten(t)
	p.settle(t)
	if n := len(p.pods.claimed("")); n != len(functions) {
		t.Errorf("%d requests had %d pods:%s", len(functions), n, p.pods)
	}
}

// waitForgotten waits until no controller knows a request in progress in the pool, nor a function of it. At no look
// may a count be one that has fallen below zero.
func (p *pool) waitForgotten(t *testing.T) {
	t.Helper()
	const tooMany = 1 << 20
	operator := p.operator(t)
	eventually(t, "the end of the functions of pool "+p.name, func() (bool, string) {
		all, err := operator.GetClusterState(t.Context(), &skipperpb.GetClusterStateRequest{})
		if err != nil {
			return false, err.Error()
		}
		var left []string
		for _, s := range all.GetClusterState().GetSupervisors() {
			if s.GetFunction().GetDeployment() != p.name {
				continue
			}
			left = append(left, s.String())
			for _, h := range s.GetRouterHeartbeats() {
				if n := h.GetHeartbeat().GetInFlightRequests(); n > tooMany {
					t.Errorf("%d requests in progress: %s", n, s)
				}
			}
		}
		return len(left) == 0, fmt.Sprint(left)
	})
}

// operator is a client with an operator's rights.
func (w *world) operator(t *testing.T) skipperpb.ControllerServiceClient {
	t.Helper()
	return skipperpb.NewControllerServiceClient(w.dialController(t, w.certificate(t, identity.Operator), nil))
}

// A pod that is released under an endless request is kept until the drain timeout, and not for ever. The request is
// cut then, and new ones have long gone elsewhere.
func endlessStory(t *testing.T, w *world) {
	p := w.newPool(t, 2)
	f := p.function("a")
	conn := p.dialWebSocket(t, f)
	exchange(t, conn, "before")
	operator := p.operator(t)
	got, err := operator.GetInstance(t.Context(), &skipperpb.GetInstanceRequest{Function: f})
	if err != nil {
		t.Fatal(err)
	}
	old := types.UID(got.GetInstance().GetUid())
	if _, err := operator.ReleaseInstance(t.Context(), &skipperpb.ReleaseInstanceRequest{Instance: got.GetInstance()}); err != nil {
		t.Fatal(err)
	}
	p.waitAnswer(t, "a", old)
	for {
		e, known := p.pods.entry(old)
		if !known || e.gone || e.pod.DeletionTimestamp != nil {
			break
		}
		exchange(t, conn, "while it drains")
		pauseABeat(t)
	}
	p.waitGone(t, old)
	p.wantDrained(t, old, drainTimeout(t))
	if a := p.get(t.Context(), f, "/"); a.status != http.StatusOK {
		t.Errorf("after the end of the old pod: %s", a)
	}
}

// wantDrained fails unless a pod was told to drain, and deleted no earlier than d after that.
func (p *pool) wantDrained(t *testing.T, uid types.UID, d time.Duration) {
	t.Helper()
	e, _ := p.pods.entry(uid)
	since, err := time.Parse(time.RFC3339, e.pod.Annotations[drainingAtNote])
	if err != nil {
		t.Errorf("annotation %s of pod %s: %v", drainingAtNote, e.pod.Name, err)
		return
	}
	asked, deleted := deletedAt(e)
	if !deleted {
		t.Errorf("nobody was seen to delete pod %s", e.pod.Name)
		return
	}
	if asked.Before(since.Add(d)) {
		t.Errorf("pod %s drained from %s and was deleted at %s, with a request in progress; it has %s", e.pod.Name, since, asked, d)
	}
}

// pauseABeat is the pace of a conversation, not a wait for something.
func pauseABeat(t *testing.T) {
	t.Helper()
	timer := time.NewTimer(beat)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}
