// Package delta is the incremental xDS protocol for one resource type on one
// stream: what the client wants, what it was sent, what it has acknowledged.
//
// It is plain state without lock, clock or I/O; package server owns it and
// calls it under its lock. At most one response per type is on its way: what
// changes meanwhile is only remembered by name and sent, in its newest form,
// after the answer. So a slow client costs no more than the names it asked for.
package delta

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

const wildcard = "*"

// Refusals of a request; the stream cannot go on after one.
var (
	ErrWildcard = errors.New(`a subscription to everything ("*", or no name at all) is refused for this type: subscribe by name`)
	ErrTooMany  = errors.New("too many names on one stream: unsubscribe from what is not needed")
	ErrName     = errors.New("resource name refused")
)

// Rules of a resource type.
type Rules struct {
	// Wildcard allows subscriptions to everything.
	Wildcard bool
	// CheckName refuses names with an error for the client; nil takes all.
	CheckName func(string) error
	// MaxNames bounds the explicit names of one stream.
	MaxNames int
}

// Subscription is the state of one type on one stream. Use New.
type Subscription struct {
	rules  Rules
	opened bool // a first request was handled
	all    bool // subscribed to everything
	owing  bool // the client waits for an answer even if it is empty
	names  map[string]bool
	known  map[string]mark
	dirty  map[string]bool
	flight *flight
}

// mark is what the client holds under a name; version "" is: nothing.
type mark struct {
	sent    string // version it was sent, or says that it has
	acked   string // version it has acknowledged
	ackedAt uint64 // generation of which the acknowledged version was current
}

// flight is a response that is not answered yet.
type flight struct {
	nonce      string
	at         time.Time
	generation uint64
	versions   map[string]string // "" for a removal
}

// New returns a subscription to nothing.
func New(r Rules) *Subscription {
	return &Subscription{rules: r, names: map[string]bool{}, known: map[string]mark{}, dirty: map[string]bool{}}
}

// Answer is what a request said about an earlier response.
type Answer int

// The answers; None also stands for one to a response that is long answered.
const (
	None Answer = iota
	Ack
	Nack
)

// Outcome of a request: what the caller has to do.
type Outcome struct {
	Answer Answer
	// Subscribed are names, Unsubscribed likewise; a name that is already
	// subscribed is listed again, because the client wants it again.
	Subscribed, Unsubscribed []string
	// Everything means that the client wants all resources from now on.
	Everything bool
	// Narrowed means that it no longer wants all.
	Narrowed bool
}

// Handle applies a request. After it, the caller offers every resource that
// the outcome subscribes to. On an error nothing has changed and the stream
// must end.
func (s *Subscription) Handle(r *discoveryv3.DeltaDiscoveryRequest) (Outcome, error) {
	if err := s.check(r); err != nil {
		return Outcome{}, err
	}
	o := Outcome{Answer: s.answer(r)}
	first := !s.opened
	s.opened = true
	if first {
		s.claim(r)
	}
	if first && (len(r.GetResourceNamesSubscribe()) == 0) {
		s.wantAll(&o)
	}
	for _, name := range r.GetResourceNamesSubscribe() {
		s.subscribe(name, first, &o)
	}
	for _, name := range r.GetResourceNamesUnsubscribe() {
		s.unsubscribe(name, &o)
	}
	if first && !s.all {
		s.forgetUnnamed()
	}
	return o, nil
}

// check refuses before anything changes.
func (s *Subscription) check(r *discoveryv3.DeltaDiscoveryRequest) error {
	names := r.GetResourceNamesSubscribe()
	if !s.rules.Wildcard && !s.opened && len(names) == 0 {
		return ErrWildcard
	}
	if len(s.names)+len(names) > s.rules.MaxNames || len(r.GetInitialResourceVersions()) > s.rules.MaxNames {
		return ErrTooMany
	}
	for _, name := range names {
		if err := s.checkName(name); err != nil {
			return err
		}
	}
	return nil
}

// maxNameBytes is well above every name of ours; it bounds what a client can
// make the server remember.
const maxNameBytes = 512

func (s *Subscription) checkName(name string) error {
	switch {
	case name == wildcard && !s.rules.Wildcard:
		return ErrWildcard
	case name == wildcard:
		return nil
	case len(name) > maxNameBytes || name == "":
		return fmt.Errorf("%w: %.80q has %d bytes, allowed are 1 to %d", ErrName, name, len(name), maxNameBytes)
	case s.rules.CheckName == nil:
		return nil
	}
	if err := s.rules.CheckName(name); err != nil {
		return fmt.Errorf("%w: %w", ErrName, err)
	}
	return nil
}

func (s *Subscription) answer(r *discoveryv3.DeltaDiscoveryRequest) Answer {
	f := s.flight
	if f == nil || r.GetResponseNonce() != f.nonce {
		return None
	}
	s.flight = nil
	if r.GetErrorDetail() != nil {
		return Nack
	}
	for name, version := range f.versions {
		s.acknowledge(name, version, f.generation)
	}
	return Ack
}

func (s *Subscription) acknowledge(name, version string, generation uint64) {
	m, ok := s.known[name]
	switch {
	case !ok: // it has asked anew meanwhile
	case version == "" && !s.names[name]: // gone, and nobody will ask again
		delete(s.known, name)
	default:
		m.acked, m.ackedAt = version, generation
		s.known[name] = m
	}
}

// claim believes what a reconnecting client says it has.
func (s *Subscription) claim(r *discoveryv3.DeltaDiscoveryRequest) {
	for name, version := range r.GetInitialResourceVersions() {
		if version != "" && len(name) <= maxNameBytes {
			s.known[name] = mark{sent: version, acked: version}
		}
	}
}

func (s *Subscription) wantAll(o *Outcome) {
	s.all, s.owing, o.Everything = true, true, true
}

func (s *Subscription) subscribe(name string, first bool, o *Outcome) {
	if name == wildcard {
		s.wantAll(o)
		return
	}
	if !first { // it may have forgotten the resource, so it gets it again
		delete(s.known, name)
	}
	s.names[name] = true
	o.Subscribed = append(o.Subscribed, name)
}

func (s *Subscription) unsubscribe(name string, o *Outcome) {
	if name == wildcard {
		if s.all {
			s.all, o.Narrowed = false, true
			s.forgetUnnamed()
		}
		return
	}
	if !s.names[name] {
		return
	}
	delete(s.names, name)
	delete(s.known, name)
	delete(s.dirty, name)
	o.Unsubscribed = append(o.Unsubscribed, name)
	if s.all { // the protocol wants to hear whether it is still there
		s.dirty[name] = true
	}
}

func (s *Subscription) forgetUnnamed() {
	for name := range s.known {
		if !s.names[name] {
			delete(s.known, name)
			delete(s.dirty, name)
		}
	}
}

// Names are the explicit names of the subscription.
func (s *Subscription) Names() []string { return slices.Collect(maps.Keys(s.names)) }

// Len is the number of Names.
func (s *Subscription) Len() int { return len(s.names) }

// Wants says whether the client is to hear of the resource.
func (s *Subscription) Wants(name string) bool { return s.all || s.names[name] }

// Claimed are the names that the client holds, or was told are absent.
func (s *Subscription) Claimed() []string { return slices.Collect(maps.Keys(s.known)) }

// Offer marks the resource for sending unless the client has this version;
// version "" means that there is no such resource.
func (s *Subscription) Offer(name, version string) {
	m, ok := s.known[name]
	if (!ok && (version != "" || s.names[name])) || (ok && m.sent != version) {
		s.dirty[name] = true
	}
}

// Changed marks the resource for sending whatever the client has.
func (s *Subscription) Changed(name string) {
	if s.Wants(name) {
		s.dirty[name] = true
	}
}

// Forget lets the server not believe that the client has the resource.
func (s *Subscription) Forget(name string) { delete(s.known, name) }

// Overdue is the time since the unanswered response was sent; 0 without one.
func (s *Subscription) Overdue(now time.Time) time.Duration {
	if s.flight == nil {
		return 0
	}
	return now.Sub(s.flight.at)
}

// Pending is how many resources the client is still to be sent, or has not
// answered.
func (s *Subscription) Pending() int {
	n := len(s.dirty)
	if s.flight != nil {
		n += max(len(s.flight.versions), 1)
	}
	return n
}

// AcknowledgedUpTo is the highest generation for which Acknowledged holds, when
// version is current and now the present generation; 0: none.
func (s *Subscription) AcknowledgedUpTo(name, version string, now uint64) uint64 {
	if s.Acknowledged(name, version, now) {
		return now
	}
	return s.known[name].ackedAt
}

// Acknowledged says whether the client has acknowledged the current version
// ("" for absent), or one that was current at the generation or later.
func (s *Subscription) Acknowledged(name, version string, generation uint64) bool {
	m := s.known[name]
	return (m.acked == version && m.sent == version) || (m.ackedAt != 0 && m.ackedAt >= generation)
}
