package retire

import (
	"skipper/controller/events"
	"skipper/controller/pool"
	skipperpb "skipper/proto"
)

// initialise has every counter stand at 0 from the start.
func (r *Retirer) initialise() {
	for _, step := range []string{"drain", "delete"} {
		r.deleted.WithLabelValues(step)
	}
	for _, outcome := range []string{"empty", "timeout"} {
		r.drains.WithLabelValues(outcome)
	}
}

func (r *Retirer) tell(p pool.Pod, kind skipperpb.EventType, severity skipperpb.EventSeverity, message string) {
	if r.cfg.Event != nil {
		r.cfg.Event(events.OfPod(p, kind, severity, message))
	}
}

// drainEnded is told of a deletion that the sweep decides.
func (r *Retirer) drainEnded(p pool.Pod, d Decision) {
	switch {
	case d.Cut:
		r.drains.WithLabelValues("timeout").Inc()
		r.tell(p, skipperpb.EventType_EVENT_TYPE_DRAIN_TIMEOUT, skipperpb.EventSeverity_EVENT_SEVERITY_WARN, d.Reason)
	case p.State() == pool.Draining:
		r.drains.WithLabelValues("empty").Inc()
	}
}
