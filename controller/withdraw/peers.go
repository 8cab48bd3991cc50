package withdraw

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// callTimeout bounds a call to another replica. What a replica said is never
// older than that when it is heard.
const callTimeout = 2 * time.Second

// maxWithdrawals bounds those of one message, some 150 bytes each, well below
// what a replica takes. The newest go first: the older may wait for somebody
// who is away, and come when the newer are done.
const maxWithdrawals = 20_000

// nodes are subscribers by how far they are, each list sorted.
type nodes struct{ inStep, behind []string }

// peerState is what another member last said.
type peerState struct {
	heardAt         time.Time
	complete, fresh bool
	subscribers     []string
	lost            map[string]time.Time
	asks            map[string]bool // UIDs of its open withdrawals
}

// setMembers takes in who else is on the ring. What a member that has left was
// waiting for becomes this replica's affair, and every other's.
func (b *book) setMembers(ips []string, now time.Time) {
	if slices.Equal(ips, b.members) {
		return
	}
	b.members = slices.Clone(ips)
	b.changed = true
	for ip, p := range b.peers {
		if slices.Contains(ips, ip) {
			continue
		}
		delete(b.peers, ip)
		b.inherit(ip, p, now)
	}
	for _, r := range b.records {
		if !r.closed { // others inherit, too: what they have answered may hold no more
			r.anew()
		}
	}
}

func (b *book) inherit(ip string, p *peerState, now time.Time) {
	wasDone := func(r *record) bool { return r.done[ip] == handled }
	for _, node := range p.subscribers {
		if !slices.Contains(b.own.inStep, node) {
			b.lose(node, away{since: now, inStep: p.heardAt, noted: now, last: now}, nil, wasDone)
		}
	}
	for node, since := range p.lost {
		b.lose(node, away{since: since, inStep: p.heardAt, noted: now, last: since}, nil, wasDone)
	}
}

// hear takes in what a member says, and answers which of its withdrawals this
// replica is not done with. Withdrawals that are unknown here are opened.
func (b *book) hear(m *skipperpb.ShareProgressRequest, now time.Time) *skipperpb.ShareProgressResponse {
	out := &skipperpb.ShareProgressResponse{}
	p := &peerState{
		heardAt: now, complete: m.GetComplete(), fresh: m.GetFresh(),
		subscribers: slices.Concat(m.GetInStep(), m.GetBehind()),
		lost:        map[string]time.Time{}, asks: map[string]bool{},
	}
	for _, l := range m.GetLost() {
		p.lost[l.GetNodeId()] = now.Add(-l.GetAge().AsDuration())
	}
	for _, w := range m.GetWithdrawals() {
		p.asks[w.GetUid()] = true
		switch b.answerFor(b.adopt(w, now), m) {
		case pending:
			out.Waiting = append(out.Waiting, w.GetUid())
		case heard:
			out.Away = append(out.Away, w.GetUid())
		case handled:
		}
	}
	if slices.Contains(b.members, m.GetSenderIp()) {
		b.peers[m.GetSenderIp()] = p
		b.takeOver()
	}
	b.inStep(m.GetInStep(), now.Add(-callTimeout))
	return out
}

// answerFor is how far this replica is, and every member that the asking one
// does not ask itself: who has left that one's ring, but not yet this one's.
func (b *book) answerFor(r *record, m *skipperpb.ShareProgressRequest) stage {
	at := r.stage()
	for _, ip := range b.members {
		if ip != m.GetSenderIp() && !slices.Contains(m.GetMembers(), ip) {
			at = min(at, r.done[ip])
		}
	}
	return at
}

// adopt finds or opens the record of a withdrawal that somebody else has seen.
func (b *book) adopt(w *skipperpb.Withdrawal, now time.Time) *record {
	r := b.records[w.GetUid()]
	if r == nil {
		key := fn.Key{Namespace: w.GetNamespace(), Deployment: w.GetDeployment(), Tenant: w.GetTenant(), Oneshot: w.GetOneshot()}
		return b.open(w.GetUid(), w.GetAddr(), key, w.GetVersion(), now)
	}
	if w.GetVersion() > r.version {
		b.raise(r, w.GetVersion())
		r.seen = false
	}
	return r
}

// takeOver makes this replica's knowledge complete once it has heard all others
// and one of them has it: what that one did not see, somebody has said.
func (b *book) takeOver() {
	complete := false
	for _, ip := range b.members {
		p := b.peers[ip]
		if p == nil {
			return
		}
		complete = complete || p.complete
	}
	b.tookOver = b.tookOver || complete
}

// complete says that no former owner of an address is unknown.
func (b *book) complete(now time.Time) bool {
	return b.tookOver || now.Sub(b.startedAt) > b.staleness
}

// message is what the members are told, with the epochs of what it asks about.
func (b *book) message(self string, fresh bool, now time.Time) (*skipperpb.ShareProgressRequest, map[string]int) {
	m := &skipperpb.ShareProgressRequest{
		SenderIp: self, InStep: b.own.inStep, Behind: b.own.behind, Complete: b.complete(now), Fresh: fresh, Members: b.members,
	}
	open := make([]*record, 0)
	for _, r := range b.records {
		if !r.closed {
			open = append(open, r)
		}
	}
	slices.SortFunc(open, func(x, y *record) int { return cmp.Or(y.since.Compare(x.since), cmp.Compare(x.uid, y.uid)) })
	epochs := map[string]int{}
	for _, r := range open[:min(len(open), maxWithdrawals)] {
		epochs[r.uid] = r.epoch
		m.Withdrawals = append(m.Withdrawals, &skipperpb.Withdrawal{
			Uid: r.uid, Addr: r.addr, Namespace: r.key.Namespace, Deployment: r.key.Deployment,
			Tenant: r.key.Tenant, Oneshot: r.key.Oneshot, Version: r.version,
		})
	}
	for node, l := range b.lost {
		m.Lost = append(m.Lost, &skipperpb.LostSubscriber{NodeId: node, Age: durationpb.New(now.Sub(l.since))})
	}
	slices.SortFunc(m.Lost, func(x, y *skipperpb.LostSubscriber) int { return cmp.Compare(x.GetNodeId(), y.GetNodeId()) })
	return m, epochs
}

// answered takes in the answer of a member to a message.
func (b *book) answered(ip string, epochs map[string]int, answer *skipperpb.ShareProgressResponse) {
	behind := map[string]stage{}
	for _, uid := range answer.GetAway() {
		behind[uid] = heard
	}
	for _, uid := range answer.GetWaiting() {
		behind[uid] = pending
	}
	for uid, epoch := range epochs {
		r := b.records[uid]
		if r == nil || r.epoch != epoch {
			continue
		}
		at, stated := behind[uid]
		if !stated {
			at = handled
		}
		r.done[ip] = max(r.done[ip], at)
	}
}
