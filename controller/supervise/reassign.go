package supervise

import (
	"context"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"skipper/controller/pool"
)

// reassign has instances whose container restarted accept their assignment
// again, in the background: some images keep it over a restart, most forget.
// One that refuses drains, and is replaced if the function still wants it. A
// restarted oneshot is deleted: its request was lost with the container.
func (s *Supervisors) reassign(ctx context.Context, r *round) {
	for _, p := range forgotten(r.instances) {
		if r.key.Oneshot {
			s.metrics.reassigns.WithLabelValues("deleted").Inc()
			s.Retirer.DeleteSoon(p, "container of the oneshot restarted")
			continue
		}
		if p.Ready && s.beginReassign(r.sup, p) {
			go s.reassignOne(ctx, r, p)
		}
	}
}

// beginReassign is false while the pod is being asked already, and where it has
// answered since the round began.
func (s *Supervisors) beginReassign(sup *supervisor, p pool.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping || sup.reassigning[p.UID] {
		return false
	}
	waits := slices.ContainsFunc(forgotten(s.Pods.Instances(p.Key)), func(now pool.Pod) bool { return now.UID == p.UID })
	if !waits {
		return false
	}
	if sup.reassigning == nil {
		sup.reassigning = map[string]bool{}
	}
	sup.reassigning[p.UID] = true
	s.growth.Add(1)
	return true
}

func (s *Supervisors) endReassign(r *round, uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(r.sup.reassigning, uid)
	s.queueLocked(r.key, 0)
	s.growth.Done()
}

func (s *Supervisors) reassignOne(ctx context.Context, r *round, p pool.Pod) {
	defer s.endReassign(r, p.UID)
	asking, cancel := context.WithTimeout(ctx, s.opts.AssignTimeout)
	defer cancel()
	outcome := "accepted"
	err := s.askAgain(asking, p)
	switch {
	case err == nil:
	case ctx.Err() != nil: // cut short by a stop it is left to the next replica
		outcome = "cut"
	case s.drains(p):
		outcome = "cut"
	default: // it drains, for it may have accepted from another replica, and serve
		outcome = "deleted"
		s.Retirer.DrainSoon(p, "did not accept its assignment after a restart: "+err.Error())
	}
	s.metrics.reassigns.WithLabelValues(outcome).Inc()
	s.Logger.Info("assignment after a restart", zap.Stringer("function", r.key), zap.String("pod", p.Namespace+"/"+p.Name),
		zap.String("uid", p.UID), zap.Int32("restarts", p.Restarts), zap.String("outcome", outcome), zap.Error(err))
}

func (s *Supervisors) drains(p pool.Pod) bool {
	return slices.ContainsFunc(s.Pods.Instances(p.Key), func(now pool.Pod) bool { return now.UID == p.UID && now.State() == pool.Draining })
}

func (s *Supervisors) askAgain(ctx context.Context, p pool.Pod) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			s.panicked(p.Key, cause)
			err = fmt.Errorf("assign pod %s/%s again: %w", p.Namespace, p.Name, errPanicked)
		}
	}()
	return s.Acquirer.Reassign(ctx, p)
}
