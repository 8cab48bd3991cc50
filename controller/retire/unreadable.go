package retire

import (
	"time"

	"go.uber.org/zap"

	"skipper/controller/pool"
)

// observe is the listener of the View: it keeps up which claimed pods nobody
// can use, because what they say of their function does not agree.
func (r *Retirer) observe(e pool.Event) {
	p := e.Pod()
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.New == nil || !isUnreadable(p) {
		delete(r.unreadable, p.UID)
		return
	}
	if _, said := r.unreadable[p.UID]; !said {
		r.log.Warn("claimed pod serves nobody: its function cannot be told", zap.String("pod", p.Namespace+"/"+p.Name),
			zap.String("uid", p.UID), zap.String("problem", p.Problem), zap.Duration("deleted_after", r.cfg.Unreadable))
	}
	r.unreadable[p.UID] = *p
}

func isUnreadable(p *pool.Pod) bool {
	return p.Marked && p.Function == nil && p.State() < pool.Draining
}

func (r *Retirer) countUnreadable() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return float64(len(r.unreadable))
}

// sweepUnreadable deletes those that have been so for long enough. The time
// counts from the claim, because nothing says when a pod was edited.
func (r *Retirer) sweepUnreadable(now time.Time) {
	r.mu.Lock()
	var due []pool.Pod
	for uid, p := range r.unreadable {
		if now.Sub(p.AssignedAt) >= r.cfg.Unreadable && r.cfg.Responsible(p.Key) {
			due = append(due, p)
			delete(r.unreadable, uid)
		}
	}
	r.mu.Unlock()
	for _, p := range due {
		r.DeleteSoon(p, "its function cannot be told: "+p.Problem)
	}
}
