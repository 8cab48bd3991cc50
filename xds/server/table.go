package server

import (
	"strconv"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"skipper/xds/server/internal/delta"
)

// table holds the resources of one type and who is subscribed to them. The
// server's lock guards it.
type table struct {
	url, label string
	rules      delta.Rules
	// onDemand types have a resource exactly while somebody is subscribed to
	// it; of the others a subscription to an absent name is kept, and told so.
	onDemand bool
	entries  map[string]*entry
	asking   int            // entries that are pending
	everyone map[*peer]bool // subscribed to everything
}

// entry is a resource, or the place of one that somebody is subscribed to.
type entry struct {
	resource *discoveryv3.Resource // nil: absent
	pending  bool                  // the source is being asked
	version  uint64                // of the list, for instances
	told     uint64                // version of the list that everybody was sent, at least
	peers    map[*peer]bool        // subscribed by name
}

func newTable(url, label string, rules delta.Rules, onDemand bool) *table {
	return &table{url: url, label: label, rules: rules, onDemand: onDemand, entries: map[string]*entry{}, everyone: map[*peer]bool{}}
}

// find is a delta.Lookup.
func (t *table) find(name string) (*discoveryv3.Resource, bool) {
	e := t.entries[name]
	if e == nil {
		return nil, true
	}
	return e.resource, !e.pending
}

// put sets or, with nil, removes a resource, and marks it for sending where
// its version changed. The marked peers are added to touched.
func (t *table) put(name string, r *discoveryv3.Resource, touched map[*peer]bool) {
	e := t.entries[name]
	if e == nil {
		if r == nil {
			return
		}
		e = &entry{peers: map[*peer]bool{}}
		t.entries[name] = e
	}
	changed := e.resource.GetVersion() != r.GetVersion()
	e.resource = r
	if changed {
		t.mark(name, e, touched)
	}
	t.dropIfUnused(name, e)
}

func (t *table) mark(name string, e *entry, touched map[*peer]bool) {
	for p := range e.peers {
		p.subs[t.url].Changed(name)
		touched[p] = true
	}
	for p := range t.everyone {
		p.subs[t.url].Changed(name)
		touched[p] = true
	}
}

// putList sets the list of a function that is subscribed to; others are
// dropped, and so is one that is older than what is there. Between a source's
// answer and a change of the same version the change wins, as the later word.
func (t *table) putList(l list, touched map[*peer]bool) {
	e := t.entries[l.resource.GetName()]
	if e == nil || (l.entry != nil && l.entry != e) {
		return
	}
	if !e.pending && (l.version < e.version || (l.entry != nil && l.version == e.version)) {
		return
	}
	e.version = l.version
	if e.pending {
		e.told = l.version
		t.settle(e, l.resource, touched)
		return
	}
	l.resource.Version = e.versionFor(l)
	t.put(l.resource.GetName(), l.resource, touched)
}

// versionFor is what the resource of a list goes by: its content, and where the
// same content has to be sent again, its own version.
func (e *entry) versionFor(l list) string {
	content := l.resource.GetVersion()
	before, _, _ := strings.Cut(e.resource.GetVersion(), "@")
	switch {
	case before != content:
		e.told = l.version
		return content
	case l.again && l.version > e.told:
		e.told = l.version
		return content + "@" + strconv.FormatUint(l.version, 10)
	}
	return e.resource.GetVersion()
}

// settle gives an entry its first content.
func (t *table) settle(e *entry, r *discoveryv3.Resource, touched map[*peer]bool) {
	e.pending, e.resource = false, r
	t.asking--
	for p := range e.peers {
		p.subs[t.url].Offer(r.GetName(), r.GetVersion())
		touched[p] = true
	}
}

// list is what a source or a change says of one function.
type list struct {
	resource *discoveryv3.Resource
	version  uint64
	entry    *entry // whom the source was asked for; nil for a change
	again    bool   // sent also to those who have the same instances
}

// subscribe adds a peer to a name and offers it what is there. A new entry of
// an on-demand type is returned: its content has to be found.
func (t *table) subscribe(p *peer, name string) *entry {
	e, fresh := t.entries[name], false
	if e == nil {
		e, fresh = &entry{peers: map[*peer]bool{}, pending: t.onDemand}, true
		t.entries[name] = e
		if e.pending {
			t.asking++
		}
	}
	e.peers[p] = true
	if !e.pending {
		p.subs[t.url].Offer(name, e.resource.GetVersion())
	}
	if fresh && t.onDemand {
		return e
	}
	return nil
}

// subscribeAll adds a peer to everything and offers it all.
func (t *table) subscribeAll(p *peer) {
	t.everyone[p] = true
	s := p.subs[t.url]
	for name, e := range t.entries {
		if e.resource != nil {
			s.Offer(name, e.resource.GetVersion())
		}
	}
	for _, name := range s.Claimed() {
		if t.entries[name] == nil {
			s.Offer(name, "")
		}
	}
}

func (t *table) unsubscribe(p *peer, name string) {
	if e := t.entries[name]; e != nil {
		delete(e.peers, p)
		t.dropIfUnused(name, e)
	}
}

// leave takes a peer out everywhere.
func (t *table) leave(p *peer) {
	delete(t.everyone, p)
	for _, name := range p.subs[t.url].Names() {
		t.unsubscribe(p, name)
	}
}

func (t *table) dropIfUnused(name string, e *entry) {
	if len(e.peers) == 0 && (t.onDemand || e.resource == nil) {
		delete(t.entries, name)
		if e.pending {
			t.asking--
		}
	}
}

// waiting are the node ids of subscribers that have not acknowledged the
// resource as of the generation.
func (t *table) waiting(name string, generation uint64, peers map[*peer]bool) []string {
	var nodes []string
	for p := range peers {
		s := p.subs[t.url]
		if s != nil && s.Wants(name) && !t.acknowledged(s, name, generation) {
			nodes = append(nodes, p.node)
		}
	}
	return nodes
}

func (e *entry) currentVersion() string {
	if e == nil {
		return ""
	}
	return e.resource.GetVersion()
}
