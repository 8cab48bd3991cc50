package acquire

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"skipper/controller/pool"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// lateClaimer hears of its claims late.
type lateClaimer struct {
	claimer
	by time.Duration
}

func (c lateClaimer) Claim(ctx context.Context, f *skipperpb.Function) (pool.Pod, error) {
	p, err := c.claimer.Claim(ctx, f)
	<-time.After(c.by)
	return p, err
}

// A pod that will not do is deleted while nobody else can have taken it up, and
// drains from then on, whatever it is that it will not do for.
func TestPodThatMayServeElsewhereDrains(t *testing.T) {
	const early, late = adoptAfter - time.Second, adoptAfter
	gone, drains := map[pool.State]int{}, map[pool.State]int{pool.Draining: 1}
	left := func(w *world) error {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		_, err := w.Acquire(ctx, single())
		return err
	}
	refused := func(w *world) error {
		w.answers(func(context.Context, pool.Pod) error { return errors.New("assignment answered with status 500") })
		ctx, cancel := context.WithTimeout(w.t.Context(), 2*adoptAfter)
		defer cancel()
		_, err := w.Acquire(ctx, single())
		return err
	}
	unfit := func(w *world) error {
		w.view.ApplyReplicaSet(pool.ReplicaSet{Namespace: "prod", Name: "echo-rs", Deployment: "echo", Replicas: 0})
		_, err := w.Replace(w.t.Context(), single())
		return err
	}
	for _, tt := range []struct {
		name string
		by   time.Duration
		end  func(*world) error
		want map[pool.State]int
	}{
		{"its caller left", early, left, gone},
		{"its caller left late", late, left, drains},
		{"it refused", early, refused, gone},
		{"it refused late", late, refused, drains},
		{"it is unfit", early, unfit, gone},
		{"it is unfit, and that is known late", late, unfit, drains},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1)
			w.cfg.Claimer = lateClaimer{w.claimer, tt.by}
			if err := tt.end(w); err == nil {
				t.Errorf("%s: there is an instance", tt.name)
			}
			w.settled()
			if diff := cmp.Diff(tt.want, w.pods()); diff != "" {
				t.Errorf("%s: pods (-want +got):\n%s", tt.name, diff)
			}
		})
	}
}

// When a claimed pod is taken up does not depend on the clock of its claimer.
func TestTakingUpDoesNotTrustClocks(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, -2 * time.Second, 0, 2 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1)
			w.answers(slow(time.Second)) // or it has accepted before it can be seen to be asked
			p := w.abandoned(single())
			p.AssignedAt, p.Version = p.AssignedAt.Add(skew), p.Version+1
			w.view.Apply(p)
			<-time.After(adoptAfter - time.Millisecond)
			if w.TakeUp(t.Context(), fn.KeyOf(single()))[p.UID] {
				t.Errorf("skew of %s: taken up too soon", skew)
			}
			<-time.After(time.Millisecond)
			if !w.TakeUp(t.Context(), fn.KeyOf(single()))[p.UID] {
				t.Errorf("skew of %s: not taken up", skew)
			}
			w.settled()
		})
	}
}
