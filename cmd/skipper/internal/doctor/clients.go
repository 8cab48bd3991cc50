package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"skipper/cmd/skipper/internal/finding"
	skipperpb "skipper/proto"
	"skipper/xds"
)

const (
	// overdueAfter is how long a healthy client may owe an answer: it takes
	// milliseconds.
	overdueAfter = 10 * time.Second
	// silentAfter is three heartbeats, or more load reports, that did not come.
	silentAfter = 15 * time.Second
	// recent is how old an event may be to be worth a finding.
	recent = time.Hour
)

func checkEnvoys(r *report, f Facts) {
	for _, e := range f.state().GetEnvoys() {
		subject := "Envoy " + e.GetNodeId()
		if e.GetProblem() != "" {
			r.add(finding.Problem, subject, e.GetProblem(), "requests through it, or what is known of them, suffer", "see to what it says")
		}
		if len(e.GetSubscriptions()) == 0 {
			r.add(finding.Problem, subject, "has no xDS stream to any controller that answers", "it does not hear of new pods: cold requests through it end with 503", "look at its log, and whether it reaches port 50051 of the controllers")
		}
		subscriptions(r, subject, e.GetSubscriptions(), "it goes on with its last good configuration, and does not know newer pods")
		switch age := e.GetLoadReportAge(); {
		case age != nil && age.AsDuration() <= silentAfter: // its stream may be moving to another controller
		case e.GetLoadControllerIp() == "":
			r.add(finding.Warning, subject, "sends load reports to no controller", "requests in progress are known from extproc alone: drains take longer after a crash", "set load_stats_config, as skipper envoy bootstrap does")
		case age != nil:
			r.add(finding.Warning, subject, fmt.Sprintf("its newest load report is %s old", age.AsDuration().Round(time.Second)), "its requests in progress count as they were then, so drains wait", "look at its connection to the controllers")
		}
	}
}

func checkExtprocs(r *report, f Facts) {
	for _, e := range f.state().GetExtprocs() {
		if e.GetRouterId() == "" {
			continue // a router that knows only the contract has neither table nor stream
		}
		subject := "extproc " + e.GetRouterId()
		if !e.GetConnected() {
			r.add(finding.Problem, subject, "has no xDS stream: its table grows stale", "it stops using it after --table-staleness, and until then holds up the reuse of addresses",
				"look at its log, and whether it reaches port 50051 of the controllers; if its pod is gone, wait for that time")
		}
		subscriptions(r, subject, e.GetSubscriptions(), "its table is older than it should be")
		if age := e.GetHeartbeatAge(); e.GetConnected() && age != nil && age.AsDuration() > silentAfter {
			r.add(finding.Warning, subject, fmt.Sprintf("its newest heartbeat is %s old", age.AsDuration().Round(time.Second)), "functions that it uses are scaled to zero after --heartbeat-timeout", "look at its log; one that serves nothing sends none")
		}
	}
}

// subscriptions says what a client refused or does not answer.
func subscriptions(r *report, subject string, all []*skipperpb.SubscriptionState, effect string) {
	for _, s := range all {
		if s.GetNacks() > 0 {
			r.add(finding.Problem, subject, fmt.Sprintf("refused %d updates of %s from controller %s, the last: %s", s.GetNacks(), s.GetType(), s.GetControllerIp(), cmp.Or(s.GetNackMessage(), "no reason given")),
				effect, "compare the versions of Envoy, extproc and controllers; report it if they fit each other")
		}
		if late := s.GetOverdue(); late != nil && late.AsDuration() > overdueAfter {
			r.add(finding.Problem, subject, fmt.Sprintf("has owed an answer on %s to controller %s for %s (%d pending)", s.GetType(), s.GetControllerIp(), late.AsDuration().Round(time.Second), s.GetPending()),
				effect+"; drains and reused addresses wait for it", "look whether it is short of CPU or hangs; restart it if it does")
		}
	}
}

// checkLeases finds those whose extproc is there no more.
func checkLeases(r *report, f Facts) {
	state := f.state()
	if state == nil {
		return // who is connected is not known
	}
	for _, l := range f.Leases {
		id := strings.TrimPrefix(l.Node, xds.ExtprocPrefix)
		alive := slices.ContainsFunc(state.GetExtprocs(), func(e *skipperpb.ExtprocState) bool { return e.GetConnected() && e.GetRouterId() == id })
		gateway := slices.Contains(f.Gateways, l.Envoy)
		ends := l.Renewed.Add(l.Lasts)
		subject := "lease " + f.System + "/" + l.Name
		switch {
		case alive:
		case ends.Before(f.Now):
			r.add(finding.Warning, subject, "its extproc is gone since "+l.Renewed.UTC().Format(time.RFC3339), "none: its table has expired", "nothing: controllers delete it; if it stays, look at their rights on leases")
		case gateway:
			r.add(finding.Warning, subject, "its extproc has no stream, while pod "+l.Envoy+" is there", "its table is used until "+ends.UTC().Format(time.RFC3339)+", and holds up the reuse of addresses", "look at that pod's container extproc")
		default:
			r.add(finding.Warning, subject, "its extproc went without goodbye, and so did its Envoy "+cmp.Or(l.Envoy, "(unknown)"),
				"addresses that it knew are not used again until "+ends.UTC().Format(time.RFC3339), "if that process is surely gone, nothing; the wait ends by itself")
		}
	}
}

// checkEvents repeats what controllers found to be set up wrongly lately.
func checkEvents(r *report, f Facts) {
	said := map[string]bool{}
	for _, e := range slices.Backward(f.state().GetEvents()) {
		if e.GetType() != skipperpb.EventType_EVENT_TYPE_MISCONFIGURED || f.Now.Sub(e.GetTimestamp().AsTime()) > recent || said[e.GetMessage()] {
			continue
		}
		said[e.GetMessage()] = true
		r.add(finding.Warning, "controller "+e.GetControllerIp(), e.GetMessage(), "the controllers said so at "+e.GetTimestamp().AsTime().Format(time.RFC3339), "see to what it says; skipper events -w shows more")
	}
}
