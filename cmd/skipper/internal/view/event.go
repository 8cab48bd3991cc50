package view

import (
	"time"

	"skipper/cmd/skipper/internal/output"
	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// Event is something that a controller did or found.
type Event struct {
	At       *time.Time `json:"timestamp"`
	Severity string     `json:"severity"`
	Type     string     `json:"type"`
	// Function as ParseFunction reads it; empty: it is about none.
	Function string `json:"function"`
	Instance string `json:"instance_name"`
	Message  string `json:"message"`
	// Controller and Sequence identify the event until that controller restarts.
	Controller string `json:"controller_ip"`
	Sequence   uint64 `json:"sequence"`
}

const severityWarn = "warn"

func eventOf(e *skipperpb.Event) Event {
	out := Event{
		At: at(e.GetTimestamp()), Severity: skipperpb.Word(e.GetSeverity()), Type: skipperpb.Word(e.GetType()),
		Instance: e.GetInstanceName(), Message: e.GetMessage(), Controller: e.GetControllerIp(), Sequence: e.GetSequence(),
	}
	if e.GetFunction() != nil {
		out.Function = fn.KeyOf(e.GetFunction()).String()
	}
	return out
}

// Warning says that somebody should look.
func (e Event) Warning() bool { return e.Severity == severityWarn }

// Events lists those of the state that keep takes, oldest first.
func Events(s *skipperpb.ClusterState, keep func(Event) bool) []Event {
	out := []Event{}
	for _, e := range s.GetEvents() {
		if v := eventOf(e); keep(v) {
			out = append(out, v)
		}
	}
	return out
}

// EventColumns are those of EventRow.
func EventColumns() []string {
	return []string{"TIME", "SEVERITY", "TYPE", "FUNCTION", "INSTANCE", "MESSAGE"}
}

// EventRow is one event as a row.
func EventRow(e Event) []output.Cell {
	severity := output.Text(e.Severity)
	if e.Warning() {
		severity.Tone = output.Warn
	}
	when := output.Cell{}
	if e.At != nil {
		when = output.Text(e.At.UTC().Format(time.RFC3339))
	}
	return []output.Cell{when, severity, output.Text(e.Type), output.Text(e.Function), output.Text(e.Instance), output.Text(e.Message)}
}

// EventGrid shows events.
func EventGrid(all []Event) output.Grid {
	g := output.Grid{Columns: EventColumns(), Empty: "no events"}
	for _, e := range all {
		g.Add(EventRow(e)...)
	}
	return g
}

// Tail tells new events from those that were shown before. Not safe for
// concurrent use. The zero value has shown none.
type Tail struct{ seen map[identity]bool }

// identity of an event. The time is in it because a controller that restarts
// counts from 1 again.
type identity struct {
	controller string
	sequence   uint64
	at         time.Time
	message    string
}

// New returns those that no earlier call was given, in order. Of a controller
// that is in all it forgets what that has forgotten; of one that is not, because
// it did not answer, it forgets nothing.
func (t *Tail) New(all []Event) []Event {
	var out []Event
	now, answered := make(map[identity]bool, len(all)), map[string]bool{}
	for _, e := range all {
		answered[e.Controller] = true
		id := identity{controller: e.Controller, sequence: e.Sequence, message: e.Message}
		if e.At != nil {
			id.at = *e.At
		}
		if !t.seen[id] && !now[id] {
			out = append(out, e)
		}
		now[id] = true
	}
	for id := range t.seen {
		if !answered[id.controller] {
			now[id] = true
		}
	}
	t.seen = now
	return out
}
