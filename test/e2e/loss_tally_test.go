//go:build e2e

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"skipper/proto/reason"
)

// tally counts what became of requests. Safe for concurrent use.
type tally struct {
	mu    sync.Mutex
	sent  map[kind]int
	again int       // sent more than once by the client itself
	bad   []outcome // lost or cut
	long  []outcome // streams and WebSockets, good ones too
}

func newTally() *tally { return &tally{sent: map[kind]int{}} }

func (tl *tally) add(o outcome) {
	tl.mu.Lock()
	defer tl.mu.Unlock()
	tl.sent[o.kind]++
	if o.sends > 1 {
		tl.again++
	}
	if o.err != nil {
		tl.bad = append(tl.bad, o)
	}
	if o.kind == stream || o.kind == socket {
		tl.long = append(tl.long, o)
	}
}

// count is the number of requests that have ended.
func (tl *tally) count() int {
	tl.mu.Lock()
	defer tl.mu.Unlock()
	n := 0
	for _, k := range tl.sent {
		n += k
	}
	return n
}

// shownLosses bounds what a failure prints.
const shownLosses = 20

// wantNoLoss fails the test for every request that did not get its whole answer. excuse names why one of them had to
// fail, such as that its pod was killed under it; "" is no excuse. What is excused is told apart, not hidden.
func (tl *tally) wantNoLoss(t *testing.T, excuse func(outcome) string) {
	t.Helper()
	tl.mu.Lock()
	defer tl.mu.Unlock()
	apart, lost := map[string]int{}, map[string]int{}
	shown := 0
	for _, o := range tl.bad {
		if why := excuse(o); why != "" && !errors.Is(o.err, errStranger) {
			apart[string(o.kind)+" "+why]++
			continue
		}
		lost[string(o.kind)+" "+o.cause()]++
		if shown++; shown <= shownLosses {
			t.Errorf("lost: %s", o)
		}
	}
	t.Logf("requests: %v, of which the client sent %d more than once; failed as they had to: %v; lost: %v", tl.sent, tl.again, apart, lost)
	if len(lost) > 0 {
		t.Errorf("lost, by kind and cause: %v", lost)
	}
}

// never excuses.
func never(outcome) string { return "" }

// cause is a word for the sum of losses.
func (o outcome) cause() string {
	switch {
	case o.reason != "":
		return string(o.reason)
	case o.status == 0:
		return "no answer"
	case o.status/100 != 2 && o.status != 101:
		return fmt.Sprint("status ", o.status)
	}
	return "cut or wrong"
}

// death is of a pod, or of the program in it, which the kubelet starts anew and which can die again.
type death struct {
	pod types.UID
	at  time.Time
}

// deathLag is how long after the order a pod may still take a request.
const deathLag = time.Second

// killedBy excuses what a pod was working on when it was killed: an answer that had begun, and a request that it had
// been sent. A request that was not sent to it has no excuse; but the body of an upload cannot be sent twice, since
// nobody keeps so much.
func killedBy(deaths []death) func(outcome) string {
	return func(o outcome) string {
		for _, d := range deaths {
			switch {
			case !o.during(d.at):
			case o.pod == d.pod && o.reason == "":
				return "cut: its pod was killed while it answered"
			case o.reason == reason.InstanceReset:
				return "failed: its pod was killed before it answered"
			case o.kind == upload && (o.reason == reason.ConnectFailed || o.reason == reason.NoInstance):
				return "failed: its body cannot be sent to another pod"
			}
		}
		return ""
	}
}

// during tells whether a request was in progress when a pod was killed.
func (o outcome) during(at time.Time) bool {
	return o.began.Before(at.Add(deathLag)) && o.ended.After(at)
}

// servedWhileDraining counts the streams and WebSockets that were still in progress when their pod was told to drain.
func (tl *tally) servedWhileDraining(pods *ledger) int {
	tl.mu.Lock()
	defer tl.mu.Unlock()
	n := 0
	for _, o := range tl.long {
		e, known := pods.entry(o.pod)
		if !known {
			continue
		}
		at, err := time.Parse(time.RFC3339, e.pod.Annotations[drainingAtNote])
		if err == nil && o.began.Before(at) && o.ended.After(at.Add(time.Second)) {
			n++
		}
	}
	return n
}

// wantNoneDeletedUnder fails for each stream and WebSocket that was in progress when its pod was told to stop, though
// it may have ended well within the pod's grace period.
func (tl *tally) wantNoneDeletedUnder(t *testing.T, pods *ledger) {
	t.Helper()
	tl.mu.Lock()
	defer tl.mu.Unlock()
	for _, o := range tl.long {
		e, known := pods.entry(o.pod)
		if !known {
			continue
		}
		if asked, deleted := deletedAt(e); deleted && asked.Add(time.Second).Before(o.ended) {
			t.Errorf("pod %s was deleted at %s under a request: %s", e.pod.Name, asked.Format(time.TimeOnly), o)
		}
	}
}

// deletedAt is when somebody asked for the end of a pod, in whole seconds.
func deletedAt(e entry) (time.Time, bool) {
	p := e.pod
	if p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds == nil {
		return time.Time{}, false
	}
	return p.DeletionTimestamp.Add(-time.Duration(*p.DeletionGracePeriodSeconds) * time.Second), true
}

// longForm is the variable that makes each loss test go on until that many requests are counted, with heavier traffic.
const longForm = "SKIPPER_E2E_LOSS_REQUESTS"

// lossRequests is the least in the short form.
const lossRequests = 500

// extent is how much a loss test does.
type extent struct {
	requests int // at least, in whole rounds
	mix      mix
}

// lossExtent is the short form for every day, or the long one.
func lossExtent(t *testing.T) extent {
	t.Helper()
	short := extent{requests: lossRequests, mix: mix{
		senders: map[kind]int{get: 3, stream: 2, socket: 1, upload: 1}, pause: 100 * time.Millisecond,
		shortest: 20 * time.Second, longest: 25 * time.Second,
	}}
	text := os.Getenv(longForm)
	if text == "" {
		return short
	}
	long := extent{mix: mix{
		senders: map[kind]int{get: 8, stream: 4, socket: 3, upload: 1}, pause: 30 * time.Millisecond,
		shortest: 20 * time.Second, longest: 40 * time.Second,
	}}
	if _, err := fmt.Sscan(text, &long.requests); err != nil {
		t.Fatalf("%s=%q is not a number: %v", longForm, text, err)
	}
	return long
}

// only is the mix without the kinds that are not named.
func (m mix) only(kinds ...kind) mix {
	senders := map[kind]int{}
	for _, k := range kinds {
		senders[k] = m.senders[k]
	}
	m.senders = senders
	return m
}
