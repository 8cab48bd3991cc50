package acquire

import (
	"slices"

	"skipper/controller/pool"
)

// Step is what a function that is asked for an instance needs.
type Step int

// The steps.
const (
	// Use one of Pods.
	Use Step = iota
	// Assign another pod.
	Assign
	// Await: the function has all the instances it may have and none of them
	// is ready; one of them may become so.
	Await
)

// Decision is a Step with its reason.
type Decision struct {
	Step Step
	// Pods to choose from, each as good as the other; empty unless Use.
	Pods   []pool.Pod
	Reason string
}

// Decide says what a function with these instances needs. Excluded pods, by
// name, are used only where no other may be had: the function has routable
// ones, all of them excluded, and as many instances as it may have. Draining
// instances do not count.
func Decide(instances []pool.Pod, exclude []string, maxInstances uint32) Decision {
	var good, excluded []pool.Pod
	count := 0
	for _, p := range instances {
		if p.State() != pool.Draining {
			count++
		}
		switch {
		case !p.Routable():
		case slices.Contains(exclude, p.Name):
			excluded = append(excluded, p)
		default:
			good = append(good, p)
		}
	}
	switch {
	case len(good) > 0:
		return Decision{Use, good, "the function has ready instances"}
	case count < int(maxInstances):
		return Decision{Assign, nil, "the function has no ready instance that is not excluded"}
	case len(excluded) > 0:
		return Decision{Use, excluded, "all instances are excluded and there may be no more"}
	}
	return Decision{Await, nil, "the function has all the instances it may have, none of them ready"}
}
