package withdraw

import (
	"time"

	"skipper/controller/pool"
	"skipper/proto/fn"
	"skipper/xds"
)

// notice is how much later than this replica an extproc may find out that the
// connection between them is gone, and begin to count down: the pings of its
// xDS client, rounded up.
const notice = 20 * time.Second

// lingers is how long a withdrawal is remembered after it was closed, so that a
// replica that is still asking about it does not open it anew.
const lingers = time.Minute

// underWay is how long a request may take from extproc, which sent it to a pod
// just before it heard of the pod's end, to the address: Envoy connects for 1 s
// (xds/resource), and a connection that it begins to a pod that is gone may be
// taken by the next one there.
const underWay = 3 * time.Second

// book is what one replica knows. It has no lock, clock or I/O.
type book struct {
	staleness time.Duration // of tables, with notice
	startedAt time.Time

	records  map[string]*record // by UID
	unlisted map[string]*record // those of records that are not listed
	sites    map[string]*site   // by address
	seq      uint64             // of the newest record that the view has shown

	read     bool                 // the Leases of an earlier time are known
	lost     map[string]*lostNode // subscribers that went away, by node
	departed map[string]time.Time // nodes that said goodbye, by when
	gateways map[string]gateway   // where extprocs are, by node
	own      nodes                // subscribers of this replica

	members  []string
	peers    map[string]*peerState // by IP
	tookOver bool                  // from a replica whose knowledge was complete

	blocked map[string]*blocked // free pods that were refused, by UID
	changed bool                // something that other replicas may wait for
}

// record is one withdrawal.
type record struct {
	uid, addr string
	key       fn.Key
	name      string // resource name of the function's list
	version   uint64 // a replica that has not seen this version may show the pod as claimed yet
	since     time.Time

	present    bool   // the own view still has the pod
	seen       bool   // the own view shows that the pod has left
	seq        uint64 // when it did, in the order of all records
	reached    bool   // lists that are built from now on are not older than the pod
	early      bool   // one that was older was published
	listed     bool   // such a list without the pod was published, at generation
	generation uint64
	acked      bool // by all subscribers that are connected
	// lost are the nodes that went away and may not know; true for those that
	// had the function's list.
	lost map[string]bool

	// epoch counts up with every reason to ask all members anew; done is what
	// they have answered since. Once all have heard, nobody tells extprocs of the
	// pod any more: only what members answer from then on, final, is their last
	// word about those that are away.
	epoch    int
	done     map[string]stage
	final    bool
	closed   bool
	closedAt time.Time
	// heardAt is when all were first known to have heard; it stays when a later
	// version opens the record again.
	heardAt time.Time
}

// stage is how far a replica is with a withdrawal.
type stage int

const (
	// pending: its informers or a subscriber are not there yet.
	pending stage = iota
	// heard by all who have had the function's list.
	heard
	// handled: by everybody who may have been told of the pod.
	handled
)

// stage of this replica.
func (r *record) stage() stage {
	if !r.seen || !r.listed || !r.acked {
		return pending
	}
	for _, subscribed := range r.lost {
		if subscribed {
			return pending
		}
	}
	if len(r.lost) > 0 {
		return heard
	}
	return handled
}

// site is an address.
type site struct {
	owners  map[string]owner // by UID
	records map[string]*record
}

type owner struct {
	namespace string
	claimed   bool
}

func newBook(staleness time.Duration, startedAt time.Time) *book {
	return &book{
		staleness: staleness + notice, startedAt: startedAt,
		records: map[string]*record{}, unlisted: map[string]*record{}, sites: map[string]*site{},
		lost: map[string]*lostNode{}, departed: map[string]time.Time{}, gateways: map[string]gateway{},
		peers: map[string]*peerState{}, blocked: map[string]*blocked{},
	}
}

// observe takes in a change of the view. Watermark is the view's, of the pod's
// namespace, now.
func (b *book) observe(e pool.Event, watermark uint64, now time.Time) {
	if e.Old != nil {
		b.disown(e.Old)
	}
	if e.New != nil {
		b.settle(e.New)
	}
	b.follow(e)
	r := b.records[e.Pod().UID]
	switch {
	case r == nil && leaves(e):
		b.leave(e, watermark, now)
	case r == nil:
	case e.New == nil:
		b.raise(r, watermark)
	case r.seen && inRouting(e.New) && e.New.Key == r.key:
		b.drop(r) // back in routing
	}
}

// leave opens the record of a pod that the view shows as gone.
func (b *book) leave(e pool.Event, watermark uint64, now time.Time) {
	p, version := e.Old, watermark
	if p == nil || p.Function == nil {
		p = e.New
	}
	if e.New != nil {
		version = e.New.Version
	}
	r := b.open(p.UID, p.Addr(), p.Key, version, now)
	r.present = e.New != nil
	b.see(r)
}

// follow keeps up what is remembered of a pod besides its address.
func (b *book) follow(e pool.Event) {
	uid := e.Pod().UID
	if r := b.records[uid]; r != nil {
		r.present = e.New != nil
	}
	switch held := b.blocked[uid]; {
	case held == nil:
	case e.New == nil || e.New.State() != pool.Unassigned:
		delete(b.blocked, uid)
	default:
		held.pod = e.New
	}
}

// inRouting says that tables may have the pod, now or as soon as it is ready.
func inRouting(p *pool.Pod) bool { return p.Function != nil && p.State() < pool.Draining }

// leaves says that the event, as far as it tells, takes a claimed pod out of
// routing; or shows one that was taken out before anybody looked.
func leaves(e pool.Event) bool {
	claimed := (e.Old != nil && e.Old.Function != nil) || (e.New != nil && e.New.Function != nil)
	return claimed && (e.New == nil || !inRouting(e.New) || (e.Old != nil && e.Old.Function != nil && e.Old.Key != e.New.Key))
}

func (b *book) open(uid, addr string, key fn.Key, version uint64, now time.Time) *record {
	r := &record{
		uid: uid, addr: addr, key: key, name: xds.InstancesName(key), version: version, since: now,
		lost: map[string]bool{}, done: map[string]stage{},
	}
	b.records[uid], b.unlisted[uid] = r, r
	if addr != "" {
		b.siteOf(addr).records[uid] = r
	}
	b.changed = true
	return r
}

func (b *book) drop(r *record) {
	delete(b.records, r.uid)
	delete(b.unlisted, r.uid)
	if s := b.sites[r.addr]; s != nil {
		delete(s.records, r.uid)
		b.dropIfEmpty(r.addr, s)
	}
	b.changed = true
}

// see notes that the own view shows the pod gone.
func (b *book) see(r *record) {
	b.seq++
	r.seen, r.seq = true, b.seq
}

// raise makes all replicas be asked again, with a version at which the pod is
// certainly gone.
func (b *book) raise(r *record, version uint64) {
	if version <= r.version {
		return
	}
	r.version, r.closed, r.reached = version, false, false
	r.anew()
	b.changed = true
}

// anew forgets what members have answered.
func (r *record) anew() {
	r.done, r.final = map[string]stage{}, false
	r.epoch++
}

// finish begins the last round of questions.
func (r *record) finish() {
	for ip := range r.done {
		r.done[ip] = heard
	}
	r.final = true
	r.epoch++
}

func (b *book) siteOf(addr string) *site {
	s := b.sites[addr]
	if s == nil {
		s = &site{owners: map[string]owner{}, records: map[string]*record{}}
		b.sites[addr] = s
	}
	return s
}

func (b *book) dropIfEmpty(addr string, s *site) {
	if len(s.owners)+len(s.records) == 0 {
		delete(b.sites, addr)
	}
}

// ownsAddress says that the pod has its address for itself.
func ownsAddress(p *pool.Pod) bool { return !p.Finished() && !p.HostNetwork && p.Addr() != "" }

func (b *book) settle(p *pool.Pod) {
	if ownsAddress(p) {
		b.siteOf(p.Addr()).owners[p.UID] = owner{p.Namespace, p.Marked}
	}
}

func (b *book) disown(p *pool.Pod) {
	addr := p.Addr()
	if s := b.sites[addr]; s != nil {
		delete(s.owners, p.UID)
		b.dropIfEmpty(addr, s)
	}
}

// reach notes how far the view is: what was claimed and ended here may be ahead
// of it, and a list, which is as new as the view, then tells nobody of the end.
func (b *book) reach(watermark func(namespace string) uint64, fresh time.Time) {
	for _, r := range b.unlisted {
		r.reached = r.reached || r.shownBy(watermark(r.key.Namespace), fresh)
	}
}

func (r *record) shownBy(watermark uint64, fresh time.Time) bool {
	return watermark >= r.version || fresh.After(r.since)
}

// overdue are the functions whose lists were published too early, and are to be
// once more now.
func (b *book) overdue(watermark func(namespace string) uint64, fresh time.Time) (functions []fn.Key) {
	for _, r := range b.unlisted {
		if r.early && r.shownBy(watermark(r.key.Namespace), fresh) {
			r.early = false
			functions = append(functions, r.key)
		}
	}
	return functions
}

// published notes that the lists of these functions, built after the record
// with seq mark was seen, are served as of the generation.
func (b *book) published(mark, generation uint64, functions map[fn.Key]struct{}) {
	for uid, r := range b.unlisted {
		if _, ok := functions[r.key]; !ok || !r.seen || r.seq > mark {
			continue
		}
		if !r.reached {
			r.early = true
			continue
		}
		delete(b.unlisted, uid)
		r.listed, r.generation = true, generation
		for node, l := range b.lost {
			l.addTo(r, node)
		}
	}
}
