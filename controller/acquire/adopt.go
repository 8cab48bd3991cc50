package acquire

import (
	"context"
	"time"

	"go.uber.org/zap"

	"skipper/controller/lookup"
	"skipper/controller/pool"
	"skipper/proto/fn"
)

// adoptAfter is how long a claimed pod that nobody here assigns is left to
// whoever claimed it, who may have died in between. It is far below what callers
// wait; should the other one live after all, the pod is told the same twice,
// which it accepts. It counts from when the pod was first seen here, which is
// after it was claimed: so who claimed it knows by its own clock how long it is
// alone with the pod, whatever the clocks of the others show.
const adoptAfter = 3 * time.Second

// adoptable says that the instance counts as abandoned by who claimed it, once
// adoptAfter has passed. A restarted one is the supervisors' affair.
func adoptable(p pool.Pod) bool {
	return p.State() == pool.Assigned && !p.Forgotten && p.Ready
}

// firstSeenLocked is since when the claimed pod is known here.
func (a *Acquirer) firstSeenLocked(uid string, now time.Time) time.Time {
	if _, ok := a.firstSeen[uid]; !ok {
		a.firstSeen[uid] = now
	}
	return a.firstSeen[uid]
}

// noteLocked follows which pods are claimed and have not accepted.
func (a *Acquirer) noteLocked(e pool.Event, now time.Time) {
	switch {
	case e.New != nil && e.New.State() == pool.Assigned:
		a.firstSeenLocked(e.New.UID, now)
	case e.New != nil:
		delete(a.firstSeen, e.New.UID)
	case e.Old != nil:
		delete(a.firstSeen, e.Old.UID)
	}
}

// TakeUp has the function's instances assigned that were claimed and then left
// by who claimed them, as a replica that was killed leaves them. It does not
// wait. It may be called often: each of them is taken up once. It returns the
// UIDs of the instances that are being asked here now, whoever began that.
func (a *Acquirer) TakeUp(ctx context.Context, key fn.Key) (asked map[string]bool) {
	instances := a.cfg.View.Instances(key)
	a.adoptDue(ctx, instances, time.Now())
	a.mu.Lock()
	defer a.mu.Unlock()
	asked = map[string]bool{}
	for _, p := range instances {
		if a.inHand[p.UID] > 0 {
			asked[p.UID] = true
		}
	}
	return asked
}

// adoptDue takes up the assignment of the instances that are abandoned, and
// returns when the next one will be; false if none will.
func (a *Acquirer) adoptDue(ctx context.Context, instances []pool.Pod, now time.Time) (next time.Duration, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range instances {
		if !adoptable(p) || a.inHand[p.UID] > 0 || a.stopping {
			continue
		}
		in := max(0, a.firstSeenLocked(p.UID, now).Add(adoptAfter).Sub(now))
		switch {
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
			a.cfg.Discarder.DrainSoon(p, err.Error()) // who claimed it may have had it accept after all
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.adoptions, p.UID)
		a.letGoLocked(p.UID)
	})
}

// lookTimeout bounds one look at the API server; a stop may wait for it.
const lookTimeout = time.Second

// acceptedElsewhere tells whether the pod, which has not accepted its assignment
// here, has accepted it from another replica meanwhile: then it is an instance.
// The view may lag, so the API server is asked; where it cannot say, it has not.
func (a *Acquirer) acceptedElsewhere(ctx context.Context, p pool.Pod) (pool.Pod, bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	if err := a.look(ctx, p); err != nil {
		a.log.Warn("unknown whether another replica has had the assignment accepted", zap.String("pod", p.Namespace+"/"+p.Name),
			zap.String("uid", p.UID), zap.Error(err))
	}
	shown, ok := a.cfg.View.Pod(p.UID)
	if !ok || shown.State() != pool.Ready || shown.Key != p.Key {
		return pool.Pod{}, false
	}
	a.log.Info("assignment accepted from another replica", zap.String("pod", p.Namespace+"/"+p.Name),
		zap.String("uid", p.UID), zap.Stringer("function", p.Key), zap.Time("ready_at", shown.ReadyAt))
	a.cfg.Refusals.Accepted(p.Key)
	return shown, true
}

// look has the view show the pod as the API server has it.
func (a *Acquirer) look(ctx context.Context, p pool.Pod) error {
	found, err := lookup.Pod(ctx, a.cfg.Pods, p.Namespace, p.Name)
	if found != nil && string(found.UID) == p.UID {
		a.cfg.View.ExpectWritten(pool.FromPod(found, a.cfg.Functions))
	}
	return err
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
