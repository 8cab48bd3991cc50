package table

import (
	"cmp"
	"slices"
	"time"

	skipperpb "skipper/proto"
)

// maxGone bounds how many removed pods of one function are remembered; the
// oldest are forgotten first. Far more than can leave one function while a push
// or an answer is under way.
const maxGone = 1024

// book is what is known of one function's instances. It decides which news
// count; it has no clock and no lock of its own.
type book struct {
	known map[string]*record
	gone  map[string]uint64
	// order of the pods in gone, oldest first.
	order []string
	// pushed is the highest version of a push so far.
	pushed uint64
}

type record struct {
	instance *Instance
	// confirmed by a push; the others are known from an answer alone, or doubted.
	confirmed bool
	// listed is the version of the newest push that had the instance; 0: none had.
	listed uint64
	// heard is when they were last spoken of, or first doubted.
	heard time.Time
}

// ended says that a push of that version, which lacks the instance, tells of its
// end though it is older than the instance: controllers list what they have
// written themselves before their watch shows it, and take it back in the same
// way. A push that is answered as if nothing were sent there any more must not
// leave that to doubt.
func (r *record) ended(version uint64) bool { return r.listed > 0 && version >= r.listed }

// doubt has the instance confirmed anew, because its sender's successor does not
// list it: either that one is behind, and will tell, or the pod went while no
// controller was watching, and nobody will.
func (r *record) doubt(now time.Time) {
	if r.confirmed {
		r.confirmed, r.heard = false, now
	}
}

func newBook() book {
	return book{known: map[string]*record{}, gone: map[string]uint64{}}
}

// push takes a list that was built when version was the newest that its sender
// had seen. Instances that cannot be used are passed over, and so is what a late
// push says of pods that a newer one did not list.
func (b *book) push(list []*skipperpb.Instance, version uint64, now time.Time, count func(uid string) *counter) {
	listed := make(map[string]bool, len(list))
	for _, i := range list {
		if Check(i) != nil || b.outdated(i, version) {
			continue
		}
		listed[i.GetUid()] = true
		b.learn(i, true, now, count)
		if r := b.known[i.GetUid()]; r != nil {
			r.listed = max(r.listed, version)
		}
	}
	for uid, r := range b.known {
		switch {
		case listed[uid]:
		case version >= r.instance.Version, r.ended(version):
			b.remove(uid, version)
		default:
			r.doubt(now)
		}
	}
	b.pushed = max(b.pushed, version)
}

func (b *book) outdated(i *skipperpb.Instance, version uint64) bool {
	return version < b.pushed && i.GetVersion() <= b.pushed && b.known[i.GetUid()] == nil
}

// answer takes one instance that the controller answered with, and reports
// whether it can be used.
func (b *book) answer(i *skipperpb.Instance, now time.Time, count func(uid string) *counter) bool {
	return Check(i) == nil && b.learn(i, false, now, count)
}

// learn notes an instance unless it is known to be gone or known better; false
// if it is gone.
func (b *book) learn(i *skipperpb.Instance, confirmed bool, now time.Time, count func(uid string) *counter) bool {
	uid := i.GetUid()
	if at, ok := b.gone[uid]; ok && i.GetVersion() <= at {
		return false
	}
	r := b.known[uid]
	switch {
	case r == nil:
		r = &record{}
		b.known[uid] = r
		r.instance = newInstance(i, count(uid))
	case i.GetVersion() > r.instance.Version:
		r.instance = newInstance(i, r.instance.count)
	}
	r.confirmed = r.confirmed || confirmed
	r.heard = now
	return true
}

func (b *book) remove(uid string, version uint64) {
	version = max(version, b.known[uid].instance.Version)
	delete(b.known, uid)
	if _, ok := b.gone[uid]; !ok {
		b.order = append(b.order, uid)
	}
	b.gone[uid] = version
	if len(b.order) > maxGone {
		delete(b.gone, b.order[0])
		b.order = slices.Delete(b.order, 0, 1)
	}
}

// expire drops instances that only an answer spoke of, or that were doubted, at
// or before the given time, and reports whether there were any. They may come
// back by any news.
func (b *book) expire(before time.Time) bool {
	dropped := false
	for uid, r := range b.known {
		if !r.confirmed && !r.heard.After(before) {
			delete(b.known, uid)
			dropped = true
		}
	}
	return dropped
}

// list is all known instances, the newest first.
func (b *book) list() []*Instance {
	out := make([]*Instance, 0, len(b.known))
	for _, r := range b.known {
		out = append(out, r.instance)
	}
	slices.SortFunc(out, func(x, y *Instance) int {
		return cmp.Or(y.Assigned.Compare(x.Assigned), cmp.Compare(x.UID, y.UID))
	})
	return out
}
