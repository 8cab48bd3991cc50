package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"skipper/cmd/skipper/internal/finding"
	"skipper/cmd/skipper/internal/pools"
)

// Checks lists the words that findings have as their check, in the order in
// which they are done.
func Checks() []string {
	var out []string
	for _, c := range checks() {
		out = append(out, c.name)
	}
	return out
}

// report collects the findings of one check.
type report struct {
	check string
	out   []finding.Finding
}

func (r *report) add(s finding.Severity, subject, what, why, do string) {
	r.out = append(r.out, finding.Finding{Severity: s, Check: r.check, Subject: subject, What: what, Why: why, Do: do})
}

type check struct {
	name string
	do   func(*report, Facts)
}

func checks() []check {
	return []check{
		{"access", checkAccess},
		{"metrics", checkMetrics},
		{"pool", checkPools},
		{"certificate", checkCertificates},
		{"replica", checkReplicas},
		{"ring", checkRing},
		{"clock", checkClocks},
		{"envoy", checkEnvoys},
		{"extproc", checkExtprocs},
		{"lease", checkLeases},
		{"event", checkEvents},
	}
}

// Diagnose finds what is wrong, the most urgent first.
func Diagnose(f Facts) []finding.Finding {
	out := []finding.Finding{}
	for _, c := range checks() {
		r := &report{check: c.name}
		c.do(r, f)
		out = append(out, r.out...)
	}
	for _, g := range f.Gaps {
		out = append(out, finding.Finding{
			Severity: finding.Unknown, Check: g.Check, Subject: g.What, What: "could not be checked: " + g.Why,
			Why: "what is not looked at may be wrong", Do: "run doctor with a kubeconfig that may do this (docs/cli.md lists the rights)",
		})
	}
	finding.Sort(out)
	return out
}

// checkAccess says each namespace's missing rights in one finding.
func checkAccess(r *report, f Facts) {
	missing := map[[2]string][]string{}
	effects := map[[2]string][]string{}
	for _, a := range f.Access {
		if a.Allowed {
			continue
		}
		k := [2]string{a.Who, a.Namespace}
		missing[k] = append(missing[k], strings.TrimSuffix(a.Verb+" "+a.Resource+"."+a.Group, "."))
		if !slices.Contains(effects[k], a.For) {
			effects[k] = append(effects[k], a.For)
		}
	}
	for k, verbs := range missing {
		who, ns := k[0], k[1]
		severity, do := finding.Problem, "apply deploy/function-namespace with namespace: "+ns+" (docs/functions.md)"
		switch {
		case who == You:
			severity, do = finding.Warning, "have the Role of docs/cli.md bound to you in namespace "+ns
		case ns == f.System:
			do = "apply deploy/base: its Role skipper-controller has these rights"
		}
		r.add(severity, who+" in namespace "+ns, "may not "+strings.Join(verbs, ", "), "without that: "+strings.Join(effects[k], "; "), do)
	}
}

// checkMetrics: the API matters to functions that are scaled by what it says.
func checkMetrics(r *report, f Facts) {
	if !f.Metrics.Known || f.Metrics.Served {
		return
	}
	severity, users := finding.Warning, 0
	for _, v := range f.state().GetSupervisors() {
		if s := v.GetFunction().GetScale(); s.GetTargetCpuUsageMilli() > 0 || s.GetTargetMemoryUsageMib() > 0 {
			severity = finding.Problem
			users++
		}
	}
	r.add(severity, "metrics.k8s.io", fmt.Sprintf("the cluster has no metrics API; %d functions in use have a target for CPU or memory", users),
		"such targets have no say, and requests in flight alone scale these functions", "install metrics-server")
}

func checkPools(r *report, f Facts) {
	for _, p := range f.Pools {
		subject := "deployment " + p.Namespace + "/" + p.Deployment
		if len(f.Namespaces) > 0 && !slices.Contains(f.Namespaces, p.Namespace) {
			r.add(finding.Warning, subject, "is a pool in a namespace that no controller manages", "requests for it end with 404 namespace_not_managed",
				"add "+p.Namespace+" to --function-namespaces of the controllers (docs/functions.md), or ignore this if other controllers manage it")
			continue
		}
		r.out = append(r.out, p.Findings...)
	}
	for _, p := range f.state().GetPools() {
		subject := "deployment " + p.GetNamespace() + "/" + p.GetDeployment()
		if p.GetProblem() != "" && !known(f.Pools, p.GetNamespace(), p.GetDeployment()) {
			r.add(finding.Problem, subject, p.GetProblem(), "the controllers cannot use the pool as it is", "change the Deployment as said")
		}
		if p.GetWaitingCallers() > 0 && p.GetReadyPods() == 0 {
			r.add(finding.Problem, subject, fmt.Sprintf("%d callers wait for a pod, and none can be claimed: %s", p.GetWaitingCallers(), cmp.Or(p.GetUnreadyReason(), "there is none")),
				"they end with 503 hold_timeout", "raise spec.replicas, or look at why its pods do not start")
		}
	}
}

// known: our own checks have a finding about it already.
func known(all []pools.Pool, namespace, deployment string) bool {
	return slices.ContainsFunc(all, func(p pools.Pool) bool {
		return p.Namespace == namespace && p.Deployment == deployment && len(p.Findings) > 0
	})
}

// renewWithin is how long before its end a certificate should be renewed.
const renewWithin = 14 * 24 * time.Hour

func checkCertificates(r *report, f Facts) {
	for _, c := range f.Certificates {
		subject := "secret " + f.System + "/" + c.Secret
		do := "renew it: skipper tls issue, or whatever made it, then change the Secret (docs/trust.md); nothing restarts"
		switch left := c.Ends.Sub(f.Now); {
		case left <= 0:
			r.add(finding.Problem, subject, "its certificate ended "+c.Ends.UTC().Format(time.RFC3339), "new connections of that role are refused", do)
		case left < renewWithin:
			r.add(finding.Warning, subject, "its certificate ends "+c.Ends.UTC().Format(time.RFC3339), "new connections of that role will be refused then", do)
		}
	}
}
