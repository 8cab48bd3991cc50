package sim

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skipper/controller/pool"
	"skipper/controller/ring"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// oracle is what the world remembers, to hold against what replicas do. The
// world's lock guards it.
type oracle struct {
	parser   *pool.Parser
	replicas map[string]*replica  // all that ever were, by IP
	reasons  map[string]string    // of drains, by UID and replica
	knew     map[string]bool      // whether who gave a pod up saw that it served, likewise
	decided  map[string]time.Time // deletions, by UID and replica
	released map[string]bool      // oneshot pods that extproc has given back
	touched  map[string]time.Time

	rings    map[string]*ring.Ring // by members
	views    map[string][]viewed   // rings by replica, the newest last
	moved    time.Time             // when any replica last changed its ring, or lost sight of another
	inFlight map[fn.Key]map[*gateway][]sample
	words    map[string]map[fn.Key]*spoken // by replica
}

func newOracle() oracle {
	return oracle{
		parser: pool.NewParser(100), replicas: map[string]*replica{}, reasons: map[string]string{}, knew: map[string]bool{}, released: map[string]bool{}, decided: map[string]time.Time{},
		touched: map[string]time.Time{}, rings: map[string]*ring.Ring{}, views: map[string][]viewed{}, inFlight: map[fn.Key]map[*gateway][]sample{},
		words: map[string]map[fn.Key]*spoken{}, moved: time.Now(),
	}
}

type viewed struct {
	at   time.Time
	ring *ring.Ring
}

// sample is how many requests of a function a gateway has in progress, from a time on.
type sample struct {
	at time.Time
	n  int
}

// spoken is what a replica has heard of a function's metadata.
type spoken struct {
	first string // what was in force at first; "?": not known
	last  map[string]time.Time
	gap   map[string]bool // nobody spoke of it for long enough, once
}

func (o *oracle) rejoinedLocked(ip string, members []string) {
	of := strings.Join(members, " ")
	if o.rings[of] == nil {
		o.rings[of] = ring.New(members...)
	}
	o.views[ip] = append(o.views[ip], viewed{time.Now(), o.rings[of]})
	o.moved = time.Now()
}

// countLocked keeps how many requests really are in progress.
func (o *oracle) countLocked(r *request, by int) {
	all := o.inFlight[r.f.key]
	if all == nil {
		all = map[*gateway][]sample{}
		o.inFlight[r.f.key] = all
	}
	list := all[r.ep.g]
	n := by
	if len(list) > 0 {
		n += list[len(list)-1].n
	}
	for len(list) > 1 && time.Since(list[1].at) > 2*sendsWithin {
		list = list[1:]
	}
	all[r.ep.g] = append(list, sample{time.Now(), n})
}

// surely is the least that every controller must know to be in progress: of each
// gateway that reaches them, the least within the time in which they hear.
func (o *oracle) surely(k fn.Key) int {
	total := 0
	for g, list := range o.inFlight[k] {
		if g.ended || g.ep == nil || time.Now().Before(g.troubleTil) {
			continue
		}
		total += least(list, time.Now().Add(-sendsWithin))
	}
	return total
}

// least is the smallest value that held at any time since.
func least(list []sample, since time.Time) int {
	least := 0
	for i, s := range list {
		if i == len(list)-1 || list[i+1].at.After(since) {
			if s.at.After(since) && i == 0 {
				return 0
			}
			if i == 0 || !list[i].at.After(since) || s.n < least {
				least = s.n
			}
		}
	}
	return least
}

func (w *world) functionOf(k fn.Key) *function {
	for _, f := range w.functions {
		if f.key == k {
			return f
		}
	}
	return nil
}

// needs is how many instances n requests of the function need, the naive way.
func (f *function) needs(n int) int {
	if n <= 0 {
		return 0
	}
	want := 1
	if f.threshold > 0 {
		want = max(1, (n+int(f.threshold)-1)/int(f.threshold))
	}
	return min(max(want, int(f.lowest)), int(f.highest))
}

// read is a pod of the API server, by a clock that is right.
func (o *oracle) read(p *corev1.Pod) pool.Pod { return pool.FromPod(p, o.parser) }

// instancesLocked are the function's, as the API server has them, but for those
// that drain.
func (w *world) instancesLocked(k fn.Key) []pool.Pod {
	var out []pool.Pod
	for _, p := range w.podsLocked() {
		if p.Labels[pool.LabelTenant] != k.Tenant || p.Namespace != k.Namespace {
			continue
		}
		if read := w.oracle.read(p); read.Key == k && (read.State() == pool.Assigned || read.State() == pool.Ready) {
			out = append(out, read)
		}
	}
	return out
}

// judgePatchLocked is asked of each write of a replica.
func (w *world) judgePatchLocked(r *replica, before, after *corev1.Pod) {
	switch {
	case before.Annotations[pool.AnnotationAssignedAt] != after.Annotations[pool.AnnotationAssignedAt]:
		w.judgeClaimLocked(r, before, after)
	case before.Annotations[pool.AnnotationDrainingAt] == "" && after.Annotations[pool.AnnotationDrainingAt] != "":
		w.judgeDrainLocked(r, before)
	case before.Annotations[pool.AnnotationReadyAt] != after.Annotations[pool.AnnotationReadyAt]:
		w.bodies[string(after.UID)].writtenAt = time.Now()
	}
}

func (w *world) judgeClaimLocked(r *replica, before, after *corev1.Pod) {
	w.claims++
	read := w.oracle.read(after)
	w.trace.add(r.ip, "claims %s for %s", after.UID, read.Key)
	switch {
	case before.Annotations[pool.AnnotationAssignedAt] != "":
		w.violateLocked("3", "%s claims pod %s for %s, which is claimed for %s", r.ip, after.UID, read.Key, w.oracle.read(before).Key)
	case read.Key == fn.Key{}:
		w.violateLocked("3", "%s claims pod %s in a way that nobody can read: %s", r.ip, after.UID, read.Problem)
	}
	f := w.functionOf(read.Key)
	if f == nil || read.Key.Oneshot || time.Since(w.oracle.moved) < 30*time.Second || w.oracle.unsettled(w.replicas) || w.apiTroubledLocked() {
		return // a claim whose answer was lost is another one's instance later
	}
	have := 1 // this one
	for _, p := range w.instancesLocked(read.Key) {
		if shown, known := r.view.Pod(p.UID); !known || shown.State() < pool.Draining {
			have++
		}
	}
	if most := int(f.highest) + 1; have > most {
		w.violateLocked("7", "%s claims instance %d of %s, at most %d may be", r.ip, have, f, most)
	}
}

// unsettled says that some replica has not run for long.
func (o *oracle) unsettled(all []*replica) bool {
	return slices.ContainsFunc(all, func(r *replica) bool { return time.Since(r.policy.StartedAt) < 30*time.Second })
}

func (w *world) judgeDrainLocked(r *replica, before *corev1.Pod) {
	p := w.oracle.read(before)
	reason := w.oracle.reasons[p.UID+r.ip]
	w.trace.add(r.ip, "drains %s of %s: %s", p.UID, p.Key, reason)
	switch {
	case p.Key.Oneshot || p.State() >= pool.Terminating:
		return
	case strings.HasPrefix(reason, "gives up"):
		// Who is not shown yet that it serves drains: that costs a pod, but no request.
		if w.oracle.knew[p.UID+r.ip] {
			w.violateLocked("8", "%s gives up pod %s of %s, and knows that it serves", r.ip, p.UID, p.Key)
		}
		return
	}
	w.judgeRingLocked(r, p)
	if strings.Contains(reason, "metadata") {
		w.judgeFlipLocked(r, p)
	}
	f := w.functionOf(p.Key)
	if f != nil {
		w.judgeCountLocked(r, p, f, reason)
	}
}

// drains says that no new request goes to the pod.
func (w *world) drains(uid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.podOfLocked(uid)
	return p != nil && w.oracle.read(p).State() >= pool.Draining
}

// judgeRingLocked: only who was responsible lately drains.
func (w *world) judgeRingLocked(r *replica, p pool.Pod) {
	views := w.oracle.views[r.ip]
	for i := len(views) - 1; i >= 0; i-- {
		if owner, ok := views[i].ring.Owner(p.Key.Hash()); ok && owner == r.ip {
			return
		}
		if time.Since(views[i].at) > scaleInterval+12*time.Second {
			break // writes under way, and some that are tried again
		}
	}
	if w.apiTroubledLocked() {
		return // they may be tried for longer
	}
	w.violateLocked("7", "%s drains %s of %s, and has not been responsible for it", r.ip, p.UID, p.Key)
}

func (w *world) apiTroubledLocked() bool {
	now := time.Now()
	return now.Before(w.api.downTil.Add(30*time.Second)) || now.Before(w.api.slowTil.Add(30*time.Second))
}

// judgeCountLocked: what is surely needed is there without the pod, but for pods
// that ended unseen. Links that are cut keep heartbeats from the replica.
func (w *world) judgeCountLocked(r *replica, p pool.Pod, f *function, reason string) {
	if w.linksTroubledLocked() {
		return
	}
	need := f.needs(w.oracle.surely(p.Key))
	have := 0
	for _, other := range w.instancesLocked(p.Key) {
		if other.UID != p.UID {
			have++
		}
	}
	for _, shown := range r.view.Instances(p.Key) {
		if now := w.podOfLocked(shown.UID); shown.UID != p.UID && shown.State() != pool.Draining && (now == nil || w.oracle.read(now).State() >= pool.Terminating) {
			have++
		}
	}
	if strings.HasPrefix(reason, "stale") {
		need = min(need, 1) // its replacement counts in its place: there are no fewer than before
	}
	if have < need {
		w.violateLocked("7", "%s drains %s of %s and leaves %d instances, %d are needed: %s", r.ip, p.UID, f, have, need, reason)
	}
}

func (w *world) linksTroubledLocked() bool {
	for _, til := range w.links {
		if time.Now().Before(til.Add(sendsWithin + stabilization)) {
			return true
		}
	}
	return false
}

// judgeFlipLocked: a configuration in force stays while anybody speaks of it.
func (w *world) judgeFlipLocked(r *replica, p pool.Pod) {
	said := w.oracle.words[r.ip][p.Key]
	old := p.Function.GetMetadata()
	if said == nil || said.first != old || said.gap[old] || time.Since(said.last[old]) >= agreement {
		return
	}
	w.violateLocked("config", "%s drains %s of %s for its metadata %q, of which somebody has spoken all the time", r.ip, p.UID, p.Key, old)
}

// unspoken forgets what a replica has heard of a function.
func (w *world) unspoken(r *replica, k fn.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.oracle.words[r.ip], k)
}

// spoken notes that a replica hears of a function; in force is what it believes of
// its configuration, nil: nothing.
func (w *world) spoken(r *replica, f, inForce *skipperpb.Function) {
	k, metadata, now := fn.KeyOf(f), f.GetMetadata(), time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.oracle.words[r.ip]
	if all == nil {
		all = map[fn.Key]*spoken{}
		w.oracle.words[r.ip] = all
	}
	said := all[k]
	if said == nil {
		said = &spoken{first: metadata, last: map[string]time.Time{}, gap: map[string]bool{}}
		if inForce != nil && inForce.GetMetadata() != metadata {
			said.first = "?"
		}
		all[k] = said
	}
	last, ok := said.last[metadata]
	if !ok {
		last = r.policy.StartedAt
	}
	if now.Sub(last) >= agreement && metadata != said.first || ok && now.Sub(last) >= agreement {
		said.gap[metadata] = true
	}
	said.last[metadata] = now
}

// judgeDeleteLocked is asked of each deletion by a replica.
func (w *world) judgeDeleteLocked(r *replica, p *corev1.Pod) {
	if p.DeletionTimestamp != nil {
		return
	}
	read := w.oracle.read(p)
	uid := read.UID
	b := w.bodies[uid]
	w.trace.add(r.ip, "deletes %s of %s, with %d requests", uid, read.Key, len(w.open[uid]))
	if !read.Marked {
		w.violateLocked("8", "%s deletes pod %s, which nobody has claimed", r.ip, uid)
		return
	}
	if w.leavingLocked(b, read) {
		return
	}
	late := !read.DrainingAt.IsZero() && time.Since(read.DrainingAt) >= drainTimeout-maxSkew
	if n := w.knownLocked(uid); n > 0 && !late {
		w.violateLocked("5", "%s deletes pod %s of %s, which has %d requests in progress, by %s; it drains since %s", r.ip, uid, read.Key, n, w.routersLocked(uid), since(read.DrainingAt))
		return
	}
	if read.Key.Oneshot {
		w.judgeOneshotLocked(r, read)
		return
	}
	if w.healthyLocked(r, b, read) {
		w.violateLocked("8", "%s deletes pod %s of %s, which is healthy and does not drain", r.ip, uid, read.Key)
	}
}

// healthyLocked says whether the pod served its function, and could be known to
// when the replica decided about it.
func (w *world) healthyLocked(r *replica, b *body, p pool.Pod) bool {
	decided, ok := w.oracle.decided[p.UID+r.ip]
	if !ok {
		decided = time.Now()
	}
	serves := b.alive && b.confirmed && b.function == p.Key && b.writtenAt.Before(decided)
	return serves && p.State() == pool.Ready && p.Ready && !p.Draining
}

// leavingLocked says whether the pod has ended or ends already, whoever deletes it.
func (w *world) leavingLocked(b *body, p pool.Pod) bool {
	return w.ended[p.UID] || b == nil || b.outsider || p.Finished() || p.Evicted
}

// knownLocked is how many of the pod's requests controllers can know of.
func (w *world) knownLocked(uid string) int {
	n := 0
	for r := range w.open[uid] {
		if !r.ep.g.silent() {
			n++
		}
	}
	return n
}

// routersLocked are those whose requests the pod has.
func (w *world) routersLocked(uid string) string {
	var out []string
	for r := range w.open[uid] {
		out = append(out, r.ep.g.name+" "+r.ep.id)
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ", ")
}

func since(t time.Time) any {
	if t.IsZero() {
		return "never"
	}
	return time.Since(t)
}

// judgeOneshotLocked: a pod that was given to a caller is that caller's until it
// is given back, or nobody has spoken of it for long enough: for less where who
// assigned it died before it could write that the pod accepted.
func (w *world) judgeOneshotLocked(r *replica, p pool.Pod) {
	quiet, least := time.Since(w.oracle.touched[p.UID]), heartbeatTimeout
	if p.State() == pool.Assigned {
		least = 2 * assignTimeout
	}
	if strings.HasPrefix(w.oracle.reasons[p.UID+r.ip], "container of the oneshot restarted") && p.Restarts > 0 {
		return // before or after it accepted: that cannot be told
	}
	if w.replied[p.UID] && w.bodies[p.UID].requests == 0 && !w.oracle.released[p.UID] && w.bodies[p.UID].confirmed && quiet < least-maxSkew-time.Second {
		w.violateLocked("2", "%s deletes oneshot pod %s of %s, which was given out and not given back, %s after its last use", r.ip, p.UID, p.Key, quiet)
	}
}

// checkCounts: none is below zero, which in unsigned numbers is far above all.
func (w *world) checkCounts() {
	const absurd = 10_000
	for _, r := range w.replicas {
		for _, f := range w.functions {
			if n := r.loads.Activity(f.key, time.Now()).InFlight; n > absurd {
				w.violate("6", "%s counts %d requests in progress of %s", r.ip, n, f)
			}
		}
	}
}

// unsteady is what is not as desired under steady traffic: what is desired is
// there, no more, and nothing is stale.
func (w *world) unsteady() (out findings) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.functions {
		if f.key.Oneshot {
			continue
		}
		all := w.instancesLocked(f.key)
		if want := f.needs(f.steady); len(all) != want {
			out.add("settle", "%s has %d instances at a steady %d requests, %d are desired", f, len(all), f.steady, want)
		}
		for _, p := range all {
			if p.ReplicaSet != f.pool.set(f.pool.revision) || p.Function.GetMetadata() != f.metadata {
				out.add("settle", "%s keeps stale pod %s of %s, metadata %q", f, p.UID, p.ReplicaSet, p.Function.GetMetadata())
			}
		}
	}
	return out
}

// left is what is left of traffic that has ended.
func (w *world) left() (out findings) {
	for _, r := range w.replicas {
		for _, f := range w.functions {
			if n := r.loads.Activity(f.key, time.Now()).InFlight; n != 0 {
				out.add("6", "%s counts %d requests in progress of %s after the end of traffic", r.ip, n, f)
			}
		}
		if left := r.supervisors.Functions(); len(left) > 0 {
			out.add("settle", "%s still supervises %v", r.ip, left)
		}
	}
	for _, g := range w.gateways {
		for _, u := range g.ep.table.Usage(time.Now()) {
			if u.Total != 0 {
				out.add("6", "extproc %s counts %d requests in progress of %s after the end of traffic", g.ep.id, u.Total, u.Function.GetTenant())
			}
		}
	}
	return append(out, w.leftPods()...)
}

func (w *world) leftPods() (out findings) {
	w.mu.Lock()
	defer w.mu.Unlock()
	free := map[string]int32{}
	uids := map[string]bool{}
	for _, p := range w.podsLocked() {
		read := w.oracle.read(p)
		uids[read.UID] = true
		if read.Marked {
			out.add("settle", "pod %s of %s is left, %s", read.UID, read.Key, read.State())
		} else if read.Ready {
			free[read.Deployment]++
		}
	}
	for _, d := range w.pools {
		if free[d.name] != d.replicas {
			out.add("settle", "pool %s has %d pods, want %d", d.name, free[d.name], d.replicas)
		}
	}
	for _, r := range w.replicas {
		shown := map[string]bool{}
		for _, p := range r.view.All() {
			shown[p.UID] = true
		}
		if !maps.Equal(shown, uids) {
			out.add("settle", "%s sees %d pods, there are %d", r.ip, len(shown), len(uids))
		}
	}
	return out
}
