package pool

import "time"

// overlay is what this replica knows of a pod beyond what the informer showed.
// Each part is dropped once the informer shows it, or never again matters.
type overlay struct {
	written    *Pod // the API server's reply to our newest write
	deleting   bool
	readyAt    time.Time
	drainingAt time.Time
	// restarts that the container had when it accepted; readyAt holds only
	// while it has no more.
	restarts int32
	// readySince is the watermark at that moment: lists built before do not
	// have the pod, and must not count as newer than the answer that names it.
	readySince uint64
}

// settle drops what a new object from the informer has caught up with. Where
// versions are unknown, any new object counts as newer than our write.
func (o *overlay) settle(seen *Pod) {
	if o.written != nil && !older(seen.Version, o.written.Version) {
		o.written = nil
	}
	if !seen.ReadyAt.IsZero() {
		o.readyAt = time.Time{}
	}
	if seen.Draining && !seen.DrainingAt.IsZero() {
		o.drainingAt = time.Time{}
	}
}

// over is seen with the expectations laid over it; seen itself where there are none.
func (o *overlay) over(seen *Pod) *Pod {
	if *o == (overlay{}) {
		return seen
	}
	p := *seen
	if o.written != nil {
		p = *o.written
	}
	if o.deleting {
		p.Deleting = true
	}
	if p.ReadyAt.IsZero() && !o.readyAt.IsZero() && p.Restarts == o.restarts {
		p.ReadyAt, p.Forgotten = o.readyAt, false
		p.Version = max(p.Version, o.readySince)
	}
	if !o.drainingAt.IsZero() && (!p.Draining || p.DrainingAt.IsZero()) {
		p.Draining, p.DrainingAt = true, o.drainingAt
	}
	return &p
}

// ExpectWritten records the API server's reply to a write of ours. It is shown
// until the informer shows that version or a later one. A reply older than
// what is known already changes nothing.
func (v *View) ExpectWritten(p Pod) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.pods[p.UID]
	if e == nil || older(p.Version, e.seen.Version) || (e.written != nil && older(p.Version, e.written.Version)) {
		return
	}
	e.written = &p
	v.show(e)
}

// ExpectReady records that the pod accepted its assignment at the given time,
// before the annotation says so. Restarts is how often the container that owns
// the pod's port had restarted when it was asked. Until the annotation is
// seen, the pod is shown with a version of at least the present watermark.
func (v *View) ExpectReady(uid string, restarts int32, at time.Time) {
	v.update(uid, func(o *overlay) {
		o.readyAt, o.restarts = wallClock(at), restarts
		o.readySince = v.watermarks[v.pods[uid].seen.Namespace]
	})
}

// ExpectDraining takes the pod out of routing before the annotation says so.
func (v *View) ExpectDraining(uid string, at time.Time) {
	v.update(uid, func(o *overlay) {
		if o.drainingAt.IsZero() {
			o.drainingAt = wallClock(at)
		}
	})
}

// ForgetDraining undoes ExpectDraining, for a write that certainly did not happen.
func (v *View) ForgetDraining(uid string) {
	v.update(uid, func(o *overlay) { o.drainingAt = time.Time{} })
}

// ExpectDeleted shows the pod as being deleted. It cannot be undone: whoever
// calls it goes on until the pod is gone.
func (v *View) ExpectDeleted(uid string) {
	v.update(uid, func(o *overlay) { o.deleting = true })
}
