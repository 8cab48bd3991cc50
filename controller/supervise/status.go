package supervise

import (
	"fmt"
	"time"

	"skipper/controller/scale"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// Latest is a decision and what it was made on.
type Latest struct {
	scale.Decision
	At time.Time
	// Growing are the assignments that were under way.
	Growing int
}

// Status is what is remembered of one function.
type Status struct {
	Key fn.Key
	// Function is the configuration in force; shared: read only.
	Function *skipperpb.Function
	// Latest is nil where this replica is not responsible, where it has not
	// decided yet, and for oneshots. Shared: read only.
	Latest *Latest
}

// Statuses lists the functions that have a supervisor, in no order.
func (s *Supervisors) Statuses() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Status, 0, len(s.supervisors))
	for key, sup := range s.supervisors {
		out = append(out, Status{Key: key, Function: sup.force.current, Latest: sup.latest})
	}
	return out
}

// remember keeps a decision for Statuses; nil: another replica decides.
func (s *Supervisors) remember(r *round, d *scale.Decision) {
	var latest *Latest
	if d != nil {
		latest = &Latest{Decision: *d, At: r.now, Growing: r.growing}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.sup.latest = latest
}

// requestEvent tells of a Scale that changes something.
func (s *Supervisors) requestEvent(f *skipperpb.Function, want, have int, why string) {
	kind := skipperpb.EventType_EVENT_TYPE_SCALE_UP
	switch {
	case want == have:
		return
	case want < have:
		kind = skipperpb.EventType_EVENT_TYPE_SCALE_DOWN
	}
	s.event(f, kind, skipperpb.EventSeverity_EVENT_SEVERITY_INFO,
		fmt.Sprintf("%d instances, %d desired: on request, for %s", have, want, why))
}
