package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"skipper/cmd/skipper/internal/finding"
)

// Bounds, each as the documents have it.
const (
	// frozenAfter is when a controller holds its own watch for frozen
	// (docs/isolation.md).
	frozenAfter = 150 * time.Second
	// clocksApart is what clocks of nodes may differ by (docs/isolation.md).
	clocksApart = 10 * time.Second
	// clocksOff is where it begins to be worth a look.
	clocksOff = 2 * time.Second
)

func checkReplicas(r *report, f Facts) {
	versions := map[string]bool{}
	for _, p := range f.Replicas {
		checkAnswer(r, p)
		for _, s := range p.State.GetReplicas() {
			if why := s.GetUnreachableReason(); why != "" {
				r.add(finding.Problem, "controller "+s.GetIp(), fmt.Sprintf("does not answer controller %s: %s", p.IP, why),
					"calls for the functions that it is responsible for fail, and drains and reused addresses wait for it", "look at its log, and whether network policies let controllers talk to each other on port 50051")
			}
		}
	}
	for _, s := range f.state().GetReplicas() {
		subject := "controller " + s.GetIp()
		if s.GetVersion() != "" {
			versions[s.GetVersion()] = true
		}
		switch age := s.GetViewAge(); {
		case s.GetUnreachableReason() != "":
		case s.GetHeldReason() != "":
			r.add(finding.Problem, subject, "scales nothing and serves no xDS: "+s.GetHeldReason(), "its functions keep their instances as they are, and its extprocs' tables run out", "see to what it says")
		case !s.GetSynced():
			r.add(finding.Warning, subject, "has not seen all pods yet", "it is not on the ring", "wait for it; if it lasts, look at its log and its rights")
		case age != nil && age.AsDuration() > frozenAfter:
			r.add(finding.Problem, subject, fmt.Sprintf("its view of the cluster is %s old", age.AsDuration().Round(time.Second)), "it decides by what is no longer so", "look at the API server, and at the controller's log")
		}
	}
	if len(versions) > 1 {
		r.add(finding.Warning, "controllers", fmt.Sprintf("run %d versions", len(versions)), "versions should differ during a rollout only", "kubectl -n "+f.System+" rollout status deploy/skipper-controller")
	}
}

func checkAnswer(r *report, p Replica) {
	switch {
	case p.Error == "":
	case p.Ready:
		r.add(finding.Problem, "pod "+p.Pod, "is ready and does not answer: "+p.Error, "functions that it is responsible for are not scaled", "look at its log, and at the operator's certificate and rights")
	default:
		r.add(finding.Warning, "pod "+p.Pod, "is not ready", "one controller less shares the functions", "kubectl describe the pod")
	}
}

// checkRing compares the ring as each replica has it, and the pods that should
// be on it.
func checkRing(r *report, f Facts) {
	rings := map[string][]string{} // members to who has them so
	for _, p := range f.Replicas {
		if p.State == nil {
			continue
		}
		members := strings.Join(slices.Sorted(slices.Values(p.State.GetControllerIps())), " ")
		rings[members] = append(rings[members], p.IP)
		for _, c := range p.State.GetConfig() {
			if c.GetName() == "single-controller-mode" && c.GetValue() == "true" && len(f.Replicas) > 1 {
				r.add(finding.Problem, "controller "+p.IP, "runs in single controller mode beside others", "each believes that all functions are its own, and they work against each other", "run one replica, or unset --single-controller-mode")
			}
		}
	}
	if len(rings) > 1 {
		var said []string
		for members, by := range rings {
			said = append(said, fmt.Sprintf("[%s] by %s", members, strings.Join(slices.Sorted(slices.Values(by)), " ")))
		}
		slices.Sort(said)
		r.add(finding.Problem, "ring", "controllers disagree about it: "+strings.Join(said, ", "), "two may scale the same function; nothing breaks, but surplus comes and goes",
			"run doctor again in 10 s: it is normal for a moment while controllers come and go; if it lasts, look at their watches and rights on pods")
		return
	}
	for members := range rings {
		checkMembers(r, f, strings.Fields(members))
	}
}

func checkMembers(r *report, f Facts, members []string) {
	const do = "run doctor again in 10 s; if it lasts, look at that controller's log"
	for _, p := range f.Replicas {
		if p.Ready && p.IP != "" && !slices.Contains(members, p.IP) {
			r.add(finding.Problem, "pod "+p.Pod, "is ready and not on the ring", "it is responsible for no function, and others do not tell it heartbeats", do)
		}
	}
	for _, ip := range members {
		if !slices.ContainsFunc(f.Replicas, func(p Replica) bool { return p.IP == ip }) {
			r.add(finding.Problem, "controller "+ip, "is on the ring and no pod has this address", "functions that it is responsible for are not scaled", do)
		}
	}
}

// checkClocks measures against the API server, which all others are compared
// with anyway. What a slow answer leaves open is not held against a clock.
func checkClocks(r *report, f Facts) {
	if f.Server.At.IsZero() {
		return
	}
	server, unsure := f.Server.offset()
	if off := apart(server, unsure); off > clocksApart {
		r.add(finding.Warning, "this machine", fmt.Sprintf("its clock and the API server's are %s apart", off.Round(time.Second)), "ages that skipper prints are wrong by as much", "set this machine's clock")
	}
	for _, p := range f.Replicas {
		if p.State.GetObservedAt() == nil {
			continue
		}
		theirs, more := Reading{At: p.State.GetObservedAt().AsTime(), Asked: p.Asked, Answered: p.Answered}.offset()
		off := apart(theirs-server, unsure+more)
		severity := finding.Warning
		switch {
		case off <= clocksOff:
			continue
		case off > clocksApart:
			severity = finding.Problem
		}
		r.add(severity, "controller "+p.IP, fmt.Sprintf("its clock and the API server's are at least %s apart", off.Round(time.Second)),
			"which pods may use an address again is decided by such times (docs/isolation.md: 10 s at most); tokens allow for a minute", "set the clock of its node, by NTP")
	}
}

// offset of the clock from this machine's, and how far off that may be.
func (c Reading) offset() (offset, unsure time.Duration) {
	half := c.Answered.Sub(c.Asked) / 2
	return c.At.Add(c.Step / 2).Sub(c.Asked.Add(half)), half + c.Step/2
}

// apart is the least that two clocks differ by.
func apart(offset, unsure time.Duration) time.Duration { return max(offset.Abs()-unsure, 0) }
