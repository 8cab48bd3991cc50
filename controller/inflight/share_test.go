package inflight

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	skipperpb "skipper/proto"
	"skipper/xds/loads"
)

func envoyLoad(node string, age time.Duration, counts on) *skipperpb.EnvoyLoad {
	return &skipperpb.EnvoyLoad{NodeId: node, Connected: true, Age: durationpb.New(age), InFlight: counts}
}

func shareOf(envoys ...*skipperpb.EnvoyLoad) *skipperpb.ShareLoadRequest {
	return &skipperpb.ShareLoadRequest{SenderIp: "10.0.0.2", Envoys: envoys}
}

func TestReplicaSharesItsOwnEnvoysUntilOthersKnowBetter(t *testing.T) {
	w := newWorld(t)
	p := instance("p", "10.0.0.1")
	w.add(p)
	w.store.Reported(stream("a", 1), start, []loads.Busy{busy(p, 2)})
	w.store.Reported(stream("b", 2), start, nil)
	w.store.Ended(stream("b", 2))
	if err := w.store.Hear(shareOf(envoyLoad("c", 0, on{"p": 1})), start); err != nil {
		t.Fatal(err)
	}
	lost := envoyLoad("b", 3*time.Second, on{})
	lost.Connected = false
	want := []*skipperpb.ShareLoadRequest{{SenderIp: "10.0.0.1", Envoys: []*skipperpb.EnvoyLoad{envoyLoad("a", 3*time.Second, on{"p": 2}), lost}}}
	if diff := cmp.Diff(want, w.store.Share("10.0.0.1", start.Add(3*time.Second)), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	later := start.Add(transit + 4*time.Second)
	if err := w.store.Hear(shareOf(envoyLoad("b", 0, nil)), later); err != nil {
		t.Fatal(err)
	}
	if got := w.store.Share("10.0.0.1", later); len(got[0].GetEnvoys()) != 1 {
		t.Errorf("shares %v, want only a", got)
	}
	if got := w.store.Share("10.0.0.1", start.Add(expiry+1)); len(got) != 0 {
		t.Errorf("shares %v after the expiry", got)
	}
}

func TestHandOverBetweenReplicas(t *testing.T) {
	w := newWorld(t)
	p := instance("p", "10.0.0.1")
	w.add(p)
	hear := func(sender string, connected bool, age time.Duration, n uint32, now time.Time) {
		t.Helper()
		e := envoyLoad("a", age, on{"p": n})
		e.Connected = connected
		if err := w.store.Hear(&skipperpb.ShareLoadRequest{SenderIp: sender, Envoys: []*skipperpb.EnvoyLoad{e}}, now); err != nil {
			t.Fatal(err)
		}
	}
	now := start
	hear("10.0.0.2", true, 0, 3, now)
	w.want("connected to the second", "p", now.Add(-time.Minute), now, 3, true)
	now = now.Add(5 * time.Second)
	hear("10.0.0.2", false, 5*time.Second, 3, now)
	w.want("lost", "p", now.Add(-time.Second), now, 3, false)
	now = now.Add(time.Second)
	hear("10.0.0.3", true, 0, 1, now)
	hear("10.0.0.2", false, 6*time.Second, 3, now)
	w.want("connected to the third", "p", now.Add(-transit-loadUnderWay-1), now, 1, true)
	w.want("no share is taken for younger than it may be", "p", now.Add(-transit-loadUnderWay), now, 1, false)
	now = now.Add(3 * time.Second)
	w.store.Reported(stream("a", 1), now, nil)
	hear("10.0.0.3", false, 3*time.Second, 1, now)
	w.want("connected here", "p", now.Add(-loadUnderWay-1), now, 0, true)
}

func TestBadSharesAreRefusedAsAWhole(t *testing.T) {
	good := envoyLoad("good", 0, on{"p": 1})
	many := make([]*skipperpb.EnvoyLoad, maxNodes+1)
	for i := range many {
		many[i] = good
	}
	crowded := on{}
	for i := range maxPods + 1 {
		crowded[fmt.Sprint("p", i)] = 1
	}
	for _, row := range []struct {
		says string
		r    *skipperpb.ShareLoadRequest
	}{
		{"sender_ip", &skipperpb.ShareLoadRequest{Envoys: []*skipperpb.EnvoyLoad{good}}},
		{"sender_ip", &skipperpb.ShareLoadRequest{SenderIp: strings.Repeat("1", 254)}},
		{"1025 Envoys", shareOf(many...)},
		{"envoys[1]: node_id", shareOf(good, envoyLoad("", 0, nil))},
		{"envoys[1]: node_id", shareOf(good, envoyLoad(strings.Repeat("n", 254), 0, nil))},
		{"age", shareOf(good, &skipperpb.EnvoyLoad{NodeId: "a"})},
		{"age", shareOf(good, envoyLoad("a", -1, nil))},
		{"65537 pods", shareOf(good, envoyLoad("a", 0, crowded))},
		{"UID of 65 bytes", shareOf(good, envoyLoad("a", 0, on{strings.Repeat("u", 65): 1}))},
	} {
		w := newWorld(t)
		if err := w.store.Hear(row.r, start); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v", row.says, err)
		}
		if nodes := w.store.Nodes(start); len(nodes) != 0 {
			t.Errorf("%s: took in %v", row.says, nodes)
		}
	}
}

func TestMessagesAreDividedAndLoseNothing(t *testing.T) {
	var envoys []*skipperpb.EnvoyLoad
	for i := range 100 {
		counts := on{}
		for j := range i * 10 {
			counts[fmt.Sprintf("%036d", j)] = 1
		}
		envoys = append(envoys, envoyLoad(fmt.Sprint("e", i), time.Second, counts))
	}
	const limit = 100_000
	var back []*skipperpb.EnvoyLoad
	for _, m := range batch("10.0.0.1", envoys, limit) {
		if n := proto.Size(m); n > limit {
			t.Errorf("a message of %d bytes", n)
		}
		back = append(back, m.GetEnvoys()...)
	}
	if diff := cmp.Diff(envoys, back, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if got := batch("10.0.0.1", nil, limit); got != nil {
		t.Errorf("messages %v about nobody", got)
	}
	whole := on{}
	for j := range maxPods {
		whole[fmt.Sprintf("%036d", j)] = 1_000_000
	}
	if n := proto.Size(shareOf(envoyLoad(strings.Repeat("n", maxText), time.Hour, whole))); n >= 4<<20 {
		t.Errorf("the most of one Envoy is %d bytes", n)
	}
}

func TestOldWordsAreNotTakenIn(t *testing.T) {
	w := newWorld(t)
	if err := w.store.Hear(shareOf(envoyLoad("a", expiry, nil)), start); err != nil {
		t.Fatal(err)
	}
	if len(w.store.nodes) != 0 {
		t.Errorf("took in %v", w.store.nodes)
	}
}

func FuzzHear(f *testing.F) {
	for _, r := range []*skipperpb.ShareLoadRequest{{}, shareOf(), shareOf(envoyLoad("a", time.Second, on{"p": 1, "q": 0}))} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r skipperpb.ShareLoadRequest
		if proto.Unmarshal(b, &r) != nil {
			return
		}
		w := newWorld(t)
		if err := w.store.Hear(&r, start); err != nil && len(w.store.nodes) > 0 {
			t.Fatalf("took in %v with %v", w.store.nodes, err)
		}
		for node, said := range w.store.nodes {
			for _, one := range said {
				for uid, n := range one.inFlight {
					if n == 0 || len(uid) > maxUID || node == "" {
						t.Fatalf("%q has %d on %q", node, n, uid)
					}
				}
			}
		}
	})
}
