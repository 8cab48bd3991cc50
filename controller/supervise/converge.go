package supervise

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"skipper/controller/heartbeat"
	"skipper/controller/pool"
	"skipper/controller/scale"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// round is what one converge knows. It belongs to the converge.
type round struct {
	key       fn.Key
	now       time.Time
	sup       *supervisor
	function  *skipperpb.Function
	instances []pool.Pod // draining ones included
	active    []pool.Pod // without them, and without leaving
	leaving   []pool.Pod // stale ones whose replacement counts in their place
	activity  heartbeat.Activity
	requested time.Time
	growing   int
	asked     map[string]bool // UIDs of instances that are asked to accept right now
}

// converge takes the steps of contract section 4 in their order. It returns
// false when the supervisor has ended.
func (s *Supervisors) converge(ctx context.Context, key fn.Key, now time.Time) (again bool) {
	s.metrics.converges.Inc()
	r := s.observe(key, now)
	if r == nil || s.endIfIdle(r) {
		return false
	}
	if s.Responsible(key) {
		s.reassign(ctx, r)
	}
	if key.Oneshot {
		s.convergeOneshot(r)
		return true
	}
	d := s.decide(r)
	r.sup.window.Add(now, d.Recommended, s.opts.Policy.Stabilization)
	if !s.Responsible(key) {
		s.remember(r, nil)
		return true
	}
	s.remember(r, &d)
	s.say(r, d)
	r.asked = s.Acquirer.TakeUp(ctx, key)
	s.endStuck(r)
	s.apply(ctx, r, d)
	s.rewrite(r)
	s.replaceStale(ctx, r, d)
	return true
}

// observe reads the instances, and forgets the heartbeats of a function that
// has lost all of them: whoever still uses it says so again within seconds.
func (s *Supervisors) observe(key fn.Key, now time.Time) *round {
	instances := s.Pods.Instances(key)
	s.mu.Lock()
	sup := s.supervisors[key]
	if sup == nil {
		s.mu.Unlock()
		return nil
	}
	if sup.requested > 0 {
		sup.window.Add(now, sup.requested, s.opts.Policy.Stabilization)
		sup.requested = 0
	}
	lost := sup.hadInstances && len(instances) == 0 && sup.growing == 0
	sup.hadInstances = len(instances) > 0
	s.agreedLocked(key, sup, sup.force.settle(s.opts.Agreement, now))
	s.forgetReplacedLocked(key, sup, instances)
	r := &round{
		key: key, now: now, sup: sup, function: sup.force.current,
		requested: sup.requestedAt, growing: sup.growing, instances: instances,
	}
	r.active, r.leaving = sup.countedLocked(instances)
	s.mu.Unlock()
	if lost {
		s.Heartbeats.Forget(key)
	}
	r.activity = s.Heartbeats.Activity(key, now)
	sup.trace.Heartbeat = later(sup.trace.Heartbeat, r.activity.Last)
	return r
}

// endIfIdle removes the supervisor of a function without instances, heartbeats
// and wishes.
func (s *Supervisors) endIfIdle(r *round) bool {
	if len(r.instances) > 0 || r.activity.Routers > 0 || r.now.Sub(r.requested) <= s.opts.Policy.HeartbeatTimeout {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.sup.growing > 0 || s.supervisors[r.key] != r.sup || r.sup.requestedAt != r.requested {
		return false
	}
	delete(s.supervisors, r.key)
	return true
}

// decided is what is worth a line in the log when it changes.
type decided struct {
	desired, instances, growing int
	reason                      skipperpb.ScaleReason
}

func (s *Supervisors) decide(r *round) scale.Decision {
	policy, trace := s.policy(r.now), r.sup.trace
	trace.Assigned = later(r.requested, lastAssigned(r.active, r.now))
	d := scale.Decide(policy, scale.Input{
		Scale: r.function.GetScale(), Current: len(r.active), InFlight: r.activity.InFlight,
		Metered: s.Usage != nil && s.Usage.Metered(r.key.Namespace), Samples: s.samples(r),
		LastUsed: later(r.activity.Last, trace.Assigned), Trace: trace,
		WindowMax: r.sup.window.Max(r.now, policy.Stabilization),
	}, r.now)
	s.metrics.decisions.WithLabelValues(reasonName(d.Reason)).Inc()
	return d
}

// say logs a decision that changes something; the same one not in each interval.
func (s *Supervisors) say(r *round, d scale.Decision) {
	have := len(r.active)
	if d.Desired == have+r.growing {
		if r.growing == 0 { // while an assignment is under way it may yet fail, as the one before
			r.sup.decision.over()
		}
		return
	}
	kept, ok := r.sup.decision.says(decided{d.Desired, have, r.growing, d.Reason}, r.now)
	if !ok {
		return
	}
	s.Logger.Info("scale", zap.Stringer("function", r.key),
		zap.Int("desired", d.Desired), zap.Int("unclamped", d.Unclamped), zap.Int("instances", have), zap.Int("growing", r.growing),
		zap.Stringer("reason", d.Reason), zap.String("why", d.Why), zap.Int("kept_back", kept))
	if d.Desired != have { // else only an assignment that has just ended still counts as under way
		s.event(r.function, eventOf(d, have), skipperpb.EventSeverity_EVENT_SEVERITY_INFO,
			fmt.Sprintf("%d instances, %d desired: %s", have, d.Desired, d.Why))
	}
}

func eventOf(d scale.Decision, have int) skipperpb.EventType {
	switch {
	case d.Desired > have:
		return skipperpb.EventType_EVENT_TYPE_SCALE_UP
	case d.Reason == skipperpb.ScaleReason_SCALE_REASON_HEARTBEAT_TIMEOUT:
		return skipperpb.EventType_EVENT_TYPE_HEARTBEAT_TIMEOUT
	}
	return skipperpb.EventType_EVENT_TYPE_SCALE_DOWN
}

// samples are what the instances use, for functions that are scaled on it.
func (s *Supervisors) samples(r *round) []scale.Sample {
	target := r.function.GetScale()
	if s.Usage == nil || target.GetTargetCpuUsageMilli() == 0 && target.GetTargetMemoryUsageMib() == 0 {
		return nil
	}
	out := make([]scale.Sample, 0, len(r.active)+len(r.leaving))
	for _, pods := range [][]pool.Pod{r.active, r.leaving} {
		for _, p := range pods {
			u, ok := s.Usage.Of(p.Namespace, p.Name, r.now)
			out = append(out, scale.Sample{ReadyAt: p.ReadyAt, Measured: ok, CPUMilli: u.CPUMilli, MemoryMiB: u.MemoryMiB})
		}
	}
	return out
}

// endStuck takes the stuck instances out of r, so that they are replaced in
// the same round. They drain, for another replica may have had one accept and not
// have written so yet. One that is being asked is left to that: whoever asks ends
// what refuses and what stays silent.
func (s *Supervisors) endStuck(r *round) {
	gone, spared := map[string]bool{}, s.spared(r)
	for _, p := range stuck(r.active, 2*s.opts.AssignTimeout, s.policy(r.now).StartedAt, r.now) {
		if spared[p.UID] {
			continue
		}
		if n, known := s.Heartbeats.InFlightOf(r.key, p.UID, r.now); n > 0 || !known {
			continue // serves, so only the annotation is missing
		}
		gone[p.UID] = true
		s.metrics.stuck.Inc()
		s.Retirer.DrainSoon(p, "stuck: the assignment was not accepted in time")
		s.podEvent(p, skipperpb.EventType_EVENT_TYPE_STUCK_INSTANCE_CLEANUP, skipperpb.EventSeverity_EVENT_SEVERITY_WARN,
			fmt.Sprintf("pod %s drains: it did not accept its assignment in time", p.Name))
	}
	if len(gone) > 0 {
		r.active, r.instances = without(r.active, gone), without(r.instances, gone)
	}
}

// spared are the instances that are being asked, and those that have accepted
// since the round began. The view is read last: who is asked no more shows there.
func (s *Supervisors) spared(r *round) map[string]bool {
	spared := map[string]bool{}
	maps.Copy(spared, r.asked)
	s.mu.Lock()
	maps.Copy(spared, r.sup.reassigning)
	s.mu.Unlock()
	for _, p := range s.Pods.Instances(r.key) {
		if p.State() != pool.Assigned {
			spared[p.UID] = true
		}
	}
	return spared
}

func without(pods []pool.Pod, gone map[string]bool) []pool.Pod {
	return slices.DeleteFunc(pods, func(p pool.Pod) bool { return gone[p.UID] })
}

// apply brings the number of instances nearer to the decision. It grows to what
// is recommended, not to what is merely held: a lost or stuck instance of a
// function that needs fewer is not replaced. An instance that is being assigned
// may count twice, as growing and as a pod, for a moment: then too few are
// added, and the next round, which follows at once, adds the rest. Stale ones
// that are about to drain take room below the most that there may be.
func (s *Supervisors) apply(ctx context.Context, r *round, d scale.Decision) {
	have := len(r.active)
	switch {
	case d.Recommended > have+r.growing:
		most := scale.MostWhileReplacing(r.function.GetScale()) - len(r.leaving)
		s.grow(ctx, r, min(d.Recommended, most)-have-r.growing)
	case d.Desired < have:
		// What could not be drained is a victim again in the next round.
		if err := s.shrink(ctx, r.active, have-d.Desired, reasonName(d.Reason)+": "+d.Why); err != nil {
			s.Logger.Warn("scale down", zap.Stringer("function", r.key), zap.Error(err))
		}
	}
}

// shrink drains n of the instances; it stops at the first error, because a
// refused write is seldom the only one.
func (s *Supervisors) shrink(ctx context.Context, instances []pool.Pod, n int, why string) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Interval)
	defer cancel()
	for _, p := range victims(instances, n) {
		if err := s.Retirer.Drain(ctx, p, why); err != nil {
			return err
		}
		s.metrics.drains.Inc()
	}
	return nil
}

// convergeOneshot is the safety net below oneshots: whoever asked for the pod
// releases it, unless it died before it could. Every replica keeps the record. An
// orphan drains, because a gateway that nobody hears may still use it.
func (s *Supervisors) convergeOneshot(r *round) {
	r.sup.busy = s.named(r)
	if !s.Responsible(r.key) {
		return
	}
	s.endStuck(r)
	policy := s.policy(r.now)
	for _, p := range orphans(r.instances, r.sup.busy, policy.HeartbeatTimeout, policy.StartedAt, r.now) {
		s.metrics.orphans.Inc()
		s.podEvent(p, skipperpb.EventType_EVENT_TYPE_HEARTBEAT_TIMEOUT, skipperpb.EventSeverity_EVENT_SEVERITY_WARN,
			fmt.Sprintf("oneshot pod %s drains: no heartbeat and no load report names it any more", p.Name))
		s.Retirer.DrainSoon(p, "orphaned oneshot: no heartbeat and no load report names it any more")
	}
}

// named is when each pod of a oneshot was last known to serve a request. While
// a router does not say where its requests are, any pod may serve one.
func (s *Supervisors) named(r *round) map[string]time.Time {
	busy := make(map[string]time.Time, len(r.instances))
	for _, p := range r.instances {
		last := r.sup.busy[p.UID]
		if at, ok := s.Heartbeats.Named(r.key, p.UID, r.now); ok {
			last = later(last, at)
		}
		if _, known := s.Heartbeats.InFlightOf(r.key, p.UID, r.now); !known {
			last = r.now
		}
		if !last.IsZero() {
			busy[p.UID] = last
		}
	}
	return busy
}
