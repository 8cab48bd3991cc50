package claim

import (
	"errors"
	"fmt"
)

// ErrDeploymentNotFound is returned where neither a pod nor a ReplicaSet of the
// pool was ever seen.
var ErrDeploymentNotFound = errors.New("deployment not found")

// ErrRefused is returned where the API server refuses to write claims at all,
// for example for want of permission.
var ErrRefused = errors.New("claim refused by the API server")

// ErrFunctionTooLarge is returned for a function whose JSON could not be read
// back from the pod's annotation.
var ErrFunctionTooLarge = errors.New("function JSON is larger than 8 KiB: shorten metadata")

// WaitError is returned when the context ended before there was a pod. It
// unwraps to the context's error.
type WaitError struct {
	Namespace, Deployment string
	// Usable and Total count the pool's unclaimed pods.
	Usable, Total int
	// Why is the last obstacle: an unusable pod, a lost race, an API error.
	Why string
	// Err is the context's error.
	Err error
}

// Error says how many pods there are and what to do.
func (e *WaitError) Error() string {
	s := fmt.Sprintf("%d of %d pods in pool %s/%s ready", e.Usable, e.Total, e.Namespace, e.Deployment)
	if e.Why != "" {
		s += " (" + e.Why + ")"
	}
	if e.Usable == 0 {
		s += ": scale the Deployment up or wait until its pods are ready"
	}
	return s
}

// Unwrap is the context's error.
func (e *WaitError) Unwrap() error { return e.Err }
