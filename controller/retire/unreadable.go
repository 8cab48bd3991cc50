package retire

import (
	"time"

	"go.uber.org/zap"

	"skipper/controller/pool"
)

// unreadable is a claimed pod whose function cannot be told.
type unreadable struct {
	pod pool.Pod
	// since is when this replica first saw it so: nothing says when it was
	// edited, and it may have served until then.
	since time.Time
}

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
	u, said := r.unreadable[p.UID]
	if !said {
		u.since = time.Now()
		r.log.Warn("claimed pod serves nobody: its function cannot be told", zap.String("pod", p.Namespace+"/"+p.Name),
			zap.String("uid", p.UID), zap.String("problem", p.Problem), zap.Duration("deleted_after", r.cfg.Unreadable))
	}
	u.pod = *p
	r.unreadable[p.UID] = u
}

func isUnreadable(p *pool.Pod) bool {
	return p.Marked && p.Function == nil && p.State() < pool.Draining
}

func (r *Retirer) countUnreadable() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return float64(len(r.unreadable))
}

// sweepUnreadable deletes those that have been so for long enough and have no
// request in progress, or have been so for the time of a drain: one that was
// edited while it served still has requests.
func (r *Retirer) sweepUnreadable(now time.Time) {
	for _, u := range r.longUnreadable(now) {
		drains := u.pod
		drains.DrainingAt = u.since
		d := nextOfDrain(drains, r.cfg.Progress(u.pod), now, r.cfg.Limits)
		if d.Action != Delete {
			continue
		}
		r.mu.Lock()
		delete(r.unreadable, u.pod.UID)
		r.mu.Unlock()
		r.DeleteSoon(u.pod, "its function cannot be told: "+u.pod.Problem+"; "+d.Reason)
	}
}

// longUnreadable are those that are this replica's to delete.
func (r *Retirer) longUnreadable(now time.Time) []unreadable {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []unreadable
	for _, u := range r.unreadable {
		if now.Sub(u.since) >= r.cfg.Unreadable && r.cfg.Responsible(u.pod.Key) {
			out = append(out, u)
		}
	}
	return out
}
