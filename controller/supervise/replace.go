package supervise

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/timestamppb"

	"skipper/controller/events"
	"skipper/controller/pool"
	"skipper/controller/scale"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// agreedLocked acts on what callers say of the function's configuration.
func (s *Supervisors) agreedLocked(key fn.Key, sup *supervisor, o outcome) {
	if o == unchanged || !s.Responsible(key) {
		return
	}
	if o == takenOver {
		s.Logger.Info("configuration takes over", zap.Stringer("function", key), zap.Stringer("now", sup.force.current.GetScale()))
		s.queueLocked(key, 0)
		return
	}
	const message = "callers keep disagreeing on metadata or scale: the older configuration stays in force; have all of them send the same"
	s.Logger.Warn(message, zap.Stringer("function", key))
	s.event(sup.force.current, skipperpb.EventType_EVENT_TYPE_STALE_REPLACEMENT, skipperpb.EventSeverity_EVENT_SEVERITY_WARN, message)
}

func (s *Supervisors) event(f *skipperpb.Function, kind skipperpb.EventType, severity skipperpb.EventSeverity, message string) {
	if s.Event != nil {
		s.Event(&skipperpb.Event{Timestamp: timestamppb.Now(), Function: f, Type: kind, Severity: severity, Message: message})
	}
}

func (s *Supervisors) podEvent(p pool.Pod, kind skipperpb.EventType, severity skipperpb.EventSeverity, message string) {
	if s.Event != nil {
		s.Event(events.OfPod(p, kind, severity, message))
	}
}

// rewrite has annotations follow a change of scale alone, which no pod needs to
// be replaced for.
func (s *Supervisors) rewrite(r *round) {
	for _, p := range misnamed(r.active, r.function) {
		if err := s.Acquirer.Rewrite(p, r.function); err != nil {
			s.Logger.Warn("function annotation stays as it is", zap.Stringer("function", r.key), zap.Error(err))
			return
		}
		s.metrics.rewrites.Inc()
	}
}

// replaceStale begins replacements, the oldest stale instance first, and goes
// on with those whose drain has failed.
func (s *Supervisors) replaceStale(ctx context.Context, r *round, d scale.Decision) {
	s.drainReplaced(ctx, r, d.Desired)
	if !s.used(r) {
		s.nextWaiting()
		return
	}
	sets := s.Pods.ReplicaSets(r.key.Namespace, r.key.Deployment)
	old := staleOf(r.active, sets, r.function, r.now)
	free := 0
	if len(old) > 0 && s.placeOrWait(r.key) {
		free = spares(s.Pods.Unassigned(r.key.Namespace, r.key.Deployment), sets)
	}
	for _, one := range s.beginReplacements(r, old, free, d.Desired) {
		go s.replaceOne(ctx, r, one)
	}
}

// used tells whether anybody speaks of the function. One that lives only because
// it was assigned lately is not given new pods, or each rollout would make it
// live on.
func (s *Supervisors) used(r *round) bool {
	p := s.policy(r.now)
	return r.now.Sub(later(r.activity.Last, r.requested)) <= p.HeartbeatTimeout || p.Protected(r.now)
}

// placeOrWait tells whether there is a place for a replacement; where there is
// none the function gets one when its turn comes.
func (s *Supervisors) placeOrWait(key fn.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replacing < s.opts.Replacements {
		return true
	}
	s.waitLocked(key)
	return false
}

func (s *Supervisors) waitLocked(key fn.Key) {
	if !s.waits[key] && s.opts.Replacements > 0 {
		s.waits[key] = true
		s.waiting = append(s.waiting, key)
	}
}

// beginReplacements takes the places for as many replacements as there is room
// for: from here on they count, before any pod is reserved.
func (s *Supervisors) beginReplacements(r *round, old []stale, free, desired int) []stale {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.nextWaitingLocked()
	bounds := room{
		stale: len(old), present: len(r.active) + len(r.leaving), growing: r.sup.growing,
		most: scale.MostWhileReplacing(r.function.GetScale()), desired: desired, counted: len(r.active), coming: r.sup.comingLocked(),
		slots: s.opts.Replacements - s.replacing, spares: free,
	}
	if bounds.slots <= 0 && free > 0 { // others were faster
		s.waitLocked(r.key)
	}
	n := min(bounds.begin(), s.opts.GrowthPerFunction-r.sup.growing, s.opts.Growth-s.growing)
	if n <= 0 || s.stopping {
		return nil
	}
	if r.sup.replacing == nil {
		r.sup.replacing = map[string]replacement{}
	}
	for _, one := range old[:n] {
		r.sup.replacing[one.pod.UID] = replacement{why: one.why}
	}
	s.takeLocked(r.sup, n)
	s.replacing += n
	return old[:n]
}

func (s *Supervisors) nextWaiting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextWaitingLocked()
}

// nextWaitingLocked gives a free place to the function that has waited longest.
func (s *Supervisors) nextWaitingLocked() {
	if len(s.waiting) == 0 || s.replacing >= s.opts.Replacements {
		return
	}
	next := s.waiting[0]
	s.waiting = s.waiting[1:]
	delete(s.waits, next)
	s.queueLocked(next, 0)
}

// replaceOne has a replacement assigned. The round that follows at once drains
// the stale instance: only there nobody else takes instances away meanwhile.
func (s *Supervisors) replaceOne(ctx context.Context, r *round, one stale) {
	made, err := s.tryReplace(ctx, r)
	defer s.giveBack(r.key, r.sup, err == nil)
	defer s.survive(r.key)
	s.Logger.Info("stale instance", zap.Stringer("function", r.key), zap.String("pod", one.pod.Namespace+"/"+one.pod.Name), zap.String("uid", one.pod.UID),
		zap.String("why", one.why), zap.String("replacement", made.Name), zap.Error(err))
	if err != nil {
		s.metrics.replacements.WithLabelValues("failed").Inc()
		s.endReplacement(r.sup, one.pod.UID)
		return
	}
	s.onlyDrainLeft(r.sup, one)
}

// survive is deferred where a panic would end the process.
func (s *Supervisors) survive(key fn.Key) {
	if cause := recover(); cause != nil {
		s.panicked(key, cause)
	}
}

func (s *Supervisors) onlyDrainLeft(sup *supervisor, one stale) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sup.replacing[one.pod.UID] = replacement{why: one.why, there: true}
}

// comingLocked counts the replacements that are not there yet.
func (sup *supervisor) comingLocked() int {
	n := 0
	for _, one := range sup.replacing {
		if !one.there {
			n++
		}
	}
	return n
}

func (s *Supervisors) endReplacement(sup *supervisor, uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replacedLocked(sup, uid)
}

func (s *Supervisors) tryReplace(ctx context.Context, r *round) (made pool.Pod, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.AssignTimeout)
	defer cancel()
	defer func() {
		if cause := recover(); cause != nil {
			s.panicked(r.key, cause)
			err = errPanicked
		}
	}()
	return s.Acquirer.Replace(ctx, r.function)
}

// drainReplaced drains the instances whose replacement is there already, as long
// as that leaves what is desired.
func (s *Supervisors) drainReplaced(ctx context.Context, r *round, desired int) {
	old := s.onlyToDrain(r)
	for _, p := range old[:min(len(old), mayDrain(len(r.active)+len(r.leaving), desired))] {
		s.drainOne(ctx, r, p.pod, p.why)
	}
}

func (s *Supervisors) onlyToDrain(r *round) []stale {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []stale
	for _, p := range r.leaving {
		if one := r.sup.replacing[p.UID]; one.there {
			out = append(out, stale{p, one.why})
		}
	}
	return out
}

// forgetReplacedLocked ends the replacements of which only the drain was left,
// where the instance is gone, or is another replica's to drain.
func (s *Supervisors) forgetReplacedLocked(key fn.Key, sup *supervisor, instances []pool.Pod) {
	if len(sup.replacing) == 0 {
		return
	}
	present := map[string]bool{}
	for _, p := range active(instances) {
		present[p.UID] = s.Responsible(key)
	}
	for uid, one := range sup.replacing {
		if one.there && !present[uid] {
			s.replacedLocked(sup, uid)
		}
	}
}

// drainOne ends a replacement; where the drain fails, the next round tries it again.
func (s *Supervisors) drainOne(ctx context.Context, r *round, p pool.Pod, why string) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Interval)
	defer cancel()
	if err := s.Retirer.Drain(ctx, p, "stale: "+why); err != nil {
		s.Logger.Warn("drain a stale instance", zap.Stringer("function", r.key), zap.String("uid", p.UID), zap.Error(err))
		return
	}
	s.metrics.replacements.WithLabelValues("replaced").Inc()
	s.endReplacement(r.sup, p.UID)
	s.podEvent(p, skipperpb.EventType_EVENT_TYPE_STALE_REPLACEMENT, skipperpb.EventSeverity_EVENT_SEVERITY_INFO,
		fmt.Sprintf("pod %s drains, its replacement is there: %s", p.Name, why))
}

// replacedLocked gives the place of a replacement back, once.
func (s *Supervisors) replacedLocked(sup *supervisor, uid string) {
	if _, ok := sup.replacing[uid]; !ok {
		return
	}
	delete(sup.replacing, uid)
	s.replacing--
	s.nextWaitingLocked()
}
