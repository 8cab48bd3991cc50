package withdraw

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"skipper/controller/pool"
	"skipper/proto/fn"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// recalled is the book of a controller that began at noon, and knows of an extproc that was there a moment before.
func recalled() *book {
	b := newBook(5*time.Minute, noon)
	b.read = true
	b.lose("extproc/old", away{since: noon.Add(40 * time.Second), inStep: noon.Add(-time.Minute), noted: noon}, nil, nil)
	b.envoys["extproc/old"] = "gateway-1"
	return b
}

// fresh is a free pod that was made after the extproc was last in step.
func fresh() *pool.Pod {
	return &pool.Pod{
		Namespace: "prod", Name: "p", UID: "p", IP: "10.0.0.1", Port: 80, Deployment: "echo", Ready: true, Phase: corev1.PodRunning,
		CreatedAt: noon,
	}
}

func TestWhoIsBack(t *testing.T) {
	for _, row := range []struct {
		name string
		news func(*book)
		want bool
	}{
		{"nobody", func(*book) {}, false},
		{"in step again", func(b *book) { b.inStep([]string{"extproc/old"}, noon.Add(time.Second)) }, true},
		{"in step before that was read", func(b *book) { b.inStep([]string{"extproc/old"}, noon.Add(-time.Second)) }, false},
		{"another one in step", func(b *book) { b.inStep([]string{"extproc/new"}, noon.Add(time.Second)) }, false},
		{"goodbye", func(b *book) { b.goodbye("extproc/old", noon) }, true},
		{"another one serves its Envoy", func(b *book) { b.serve("extproc/new", "gateway-1", noon) }, true},
		{"another one serves another Envoy", func(b *book) { b.serve("extproc/new", "gateway-2", noon) }, false},
		{"its own late heartbeat", func(b *book) { b.serve("extproc/old", "gateway-1", noon) }, false},
		{"its time is over", func(b *book) { b.expire(noon.Add(time.Hour)) }, true},
	} {
		b := recalled()
		row.news(b)
		if d := b.decide(fresh(), noon.Add(2*time.Second)); d.Allowed != row.want {
			t.Errorf("%s: allowed %v (%s), want %v", row.name, d.Allowed, d.Reason, row.want)
		}
	}
}

func TestSuccessorEndsOnlyWhoIsAway(t *testing.T) {
	b := recalled()
	b.serve("extproc/here", "gateway-1", noon) // ends old
	if diff := cmp.Diff([]string(nil), b.serve("extproc/twin", "gateway-1", noon)); diff != "" {
		t.Errorf("ended, though connected: %s", diff)
	}
	b.lose("extproc/here", away{since: noon, inStep: noon, noted: noon}, nil, nil)
	if diff := cmp.Diff([]string{"extproc/here"}, b.serve("extproc/twin", "gateway-1", noon)); diff != "" {
		t.Errorf("ended (-want +got):\n%s", diff)
	}
	if got := b.serve("extproc/here", "gateway-1", noon); got != nil || b.envoys["extproc/here"] != "" {
		t.Errorf("late words of one that has ended: %v ended, serves %q", got, b.envoys["extproc/here"])
	}
	if len(b.lost) != 0 || len(b.envoys) != 1 {
		t.Errorf("left behind: lost %v, envoys %v", b.lost, b.envoys)
	}
}

// A request that was sent to a pod just before everybody had forgotten it may be under way to the next one there.
func TestAddressRestsAfterItsPodIsForgotten(t *testing.T) {
	for after, want := range map[time.Duration]bool{-1: false, 0: false, underWay - 1: false, underWay: true} {
		b := newBook(5*time.Minute, noon.Add(-time.Hour))
		p := fresh()
		r := b.open("former", p.Addr(), fn.Key{Namespace: "prod", Deployment: "echo", Tenant: "t1"}, 1, noon)
		b.see(r)
		if after >= 0 {
			r.closed, r.closedAt = true, noon
		}
		b.forget(noon.Add(after))
		if d := b.decide(p, noon.Add(after)); d.Allowed != want {
			t.Errorf("%s after: allowed %v (%s), want %v", after, d.Allowed, d.Reason, want)
		}
	}
}
