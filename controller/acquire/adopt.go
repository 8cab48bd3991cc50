package acquire

import (
	"context"
	"time"

	"go.uber.org/zap"

	"skipper/controller/pool"
	"skipper/proto/fn"
)

// adoptAfter is how long a claimed pod that nobody here assigns is left to
// whoever claimed it, who may have died in between. It is far below what callers
// wait; should the other one live after all, the pod is told the same twice,
// which it accepts.
const adoptAfter = 3 * time.Second

// abandonedIn is when an instance counts as abandoned by who claimed it; false:
// not at all, as things are. A restarted one is the supervisors' affair.
func abandonedIn(p pool.Pod, now time.Time) (time.Duration, bool) {
	if p.State() != pool.Assigned || p.Forgotten || !p.Ready {
		return 0, false
	}
	return max(0, p.AssignedAt.Add(adoptAfter).Sub(now)), true
}

// TakeUp has the function's instances assigned that were claimed and then left
// by who claimed them, as a replica that was killed leaves them. It does not
// wait. It may be called often: each of them is taken up once.
func (a *Acquirer) TakeUp(ctx context.Context, key fn.Key) {
	a.adoptDue(ctx, a.cfg.View.Instances(key), time.Now())
}

// adoptDue takes up the assignment of the instances that are abandoned, and
// returns when the next one will be; false if none will.
func (a *Acquirer) adoptDue(ctx context.Context, instances []pool.Pod, now time.Time) (next time.Duration, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range instances {
		in, may := abandonedIn(p, now)
		switch {
		case !may || a.inHand[p.UID] > 0 || a.stopping:
		case in == 0:
			a.adoptLocked(ctx, p)
		case !ok || in < next:
			next, ok = in, true
		}
	}
	return next, ok
}

// adoptLocked has the pod accept what it was claimed for. Its life does not
// depend on the caller, for others wait for the pod too.
func (a *Acquirer) adoptLocked(ctx context.Context, p pool.Pod) {
	ctx, abort := context.WithCancel(context.WithoutCancel(ctx))
	a.inHand[p.UID]++
	a.adoptions[p.UID] = abort
	a.log.Info("assignment taken up that its claimer has left", zap.String("pod", p.Namespace+"/"+p.Name),
		zap.String("uid", p.UID), zap.Stringer("function", fn.KeyOf(p.Function)), zap.Time("assigned_at", p.AssignedAt))
	a.running.Go(func() {
		defer abort()
		_, err := a.assign(ctx, p, p.Function)
		if err != nil && ctx.Err() == nil { // cut short by a stop it is left to the next replica
			a.cfg.Discarder.DeleteSoon(p, err.Error())
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.adoptions, p.UID)
		a.letGoLocked(p.UID)
	})
}

func (a *Acquirer) takeInHand(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inHand[uid]++
}

func (a *Acquirer) letGo(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.letGoLocked(uid)
}

func (a *Acquirer) letGoLocked(uid string) {
	if a.inHand[uid]--; a.inHand[uid] == 0 {
		delete(a.inHand, uid)
	}
}
