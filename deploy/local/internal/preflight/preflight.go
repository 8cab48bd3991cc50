// Package preflight decides from facts about the machine whether a node can start on it, and
// says what to do where it cannot. Check is pure; Gather reads the facts.
package preflight

import (
	"fmt"
	"slices"
	"strings"
)

// minFree is what a first build needs: about 6 GB of build cache and modules, 1 GB of
// programs and images, and room for pods.
const minFree = 10 << 30

// Facts is what the decision depends on. Ports are those that the node will listen on, as
// host:port; TakenPorts the ones among them that another program has. FreeBytes is by the
// name of the folder it was measured in.
type Facts struct {
	OS         string
	UID        int
	FreeBytes  map[string]uint64
	TakenPorts []string
	Conflicts  []string
	HasBridge  bool
	Bridge     string
	HasPods    bool
	OwnState   bool
	Missing    []string
	HasApt     bool
	GoFound    bool
}

// Check returns the problems in the order a person would solve them; none means go. A later
// problem that only follows from an earlier one is left out.
func Check(f Facts) []string {
	if f.OS != "linux" {
		return []string{fmt.Sprintf("this machine runs %s: the local cluster needs Linux; use CLUSTER=existing to deploy to a cluster that you have", f.OS)}
	}
	if f.UID != 0 {
		return []string{"the local cluster needs root: run it with sudo, or use CLUSTER=existing to deploy to a cluster that you have"}
	}
	var problems []string
	if !f.GoFound {
		problems = append(problems, "the program go is not in PATH: install Go, version 1.26 or later")
	}
	problems = append(problems, checkDisk(f.FreeBytes)...)
	problems = append(problems, checkNetwork(f)...)
	if len(f.Missing) > 0 && !f.HasApt {
		problems = append(problems, "missing system packages, and there is no apt-get to install them: "+strings.Join(f.Missing, " "))
	}
	return problems
}

func checkDisk(free map[string]uint64) []string {
	var problems []string
	for dir, bytes := range free {
		if bytes < minFree {
			problems = append(problems, fmt.Sprintf("%s has %.1f GB free: make room, at least %d GB are needed",
				dir, float64(bytes)/(1<<30), minFree>>30))
		}
	}
	slices.Sort(problems)
	return problems
}

func checkNetwork(f Facts) []string {
	var problems []string
	if f.HasBridge && !f.OwnState {
		problems = append(problems, fmt.Sprintf("interface %s exists and is not ours: stop the other cluster first", f.Bridge))
	}
	if f.HasPods && !f.OwnState {
		problems = append(problems, "cgroups of pods (kubepods) exist: another kubelet runs here; stop it first")
	}
	if len(f.TakenPorts) > 0 {
		problems = append(problems, "ports taken by other programs: "+strings.Join(f.TakenPorts, ", ")+"; stop those programs first (ss -ltnp shows them)")
	}
	if len(f.Conflicts) > 0 {
		problems = append(problems, "addresses that the cluster uses are routed elsewhere: "+strings.Join(f.Conflicts, ", "))
	}
	return problems
}
