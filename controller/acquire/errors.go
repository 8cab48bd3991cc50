package acquire

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skipper/controller/assign"
	"skipper/controller/claim"
	"skipper/controller/limit"
)

// Cause is why there is no instance; a boundary turns it into a status.
type Cause int

// The causes.
const (
	// Internal: a fault that is none of the others.
	Internal Cause = iota
	// InvalidFunction: the function can never be served as it is.
	InvalidFunction
	// DeploymentNotFound: neither a pod nor a ReplicaSet was ever seen.
	DeploymentNotFound
	// PoolEmpty: no pod could be claimed before the context ended.
	PoolEmpty
	// AssignRejected: the function's pods keep refusing; see RetryAfter.
	AssignRejected
	// Unfinished: there was a pod, but no answer before the context ended.
	Unfinished
	// Refused: the API server refuses claims.
	Refused
	// LimitReached: the tenant has, or takes, as much as it may; see RetryAfter.
	LimitReached
)

var causeNames = [...]string{"internal", "invalid_function", "deployment_not_found", "pool_empty", "assign_rejected", "unfinished", "refused", "limit_reached"}

// String is the cause's name in logs and metrics.
func (c Cause) String() string { return causeNames[c] }

// Error is returned by all of the Acquirer's methods. It unwraps to what led
// to it: context.DeadlineExceeded or context.Canceled where the context ended.
type Error struct {
	Cause Cause
	// Message says what happened and what to do; meant for callers.
	Message string
	// RetryAfter is when another try makes sense; 0 where that is not known.
	RetryAfter time.Duration
	Err        error
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// Unwrap is what led to the error.
func (e *Error) Unwrap() error { return e.Err }

// classify puts an error of claim into an Error.
func classify(err error) *Error {
	e := &Error{Cause: Internal, Message: err.Error(), Err: err}
	var wait *claim.WaitError
	var limited *limit.Error
	switch {
	case errors.As(err, &limited):
		e.Cause, e.RetryAfter = LimitReached, limited.RetryAfter
	case errors.Is(err, claim.ErrDeploymentNotFound):
		e.Cause = DeploymentNotFound
	case errors.Is(err, claim.ErrFunctionTooLarge):
		e.Cause = InvalidFunction
	case errors.Is(err, claim.ErrRefused):
		e.Cause = Refused
	case errors.As(err, &wait):
		e.Cause = PoolEmpty
	}
	return e
}

func rejected(v assign.Verdict) *Error {
	return &Error{
		Cause:      AssignRejected,
		RetryAfter: v.RetryAfter,
		Message: fmt.Sprintf("%d pods in a row refused the function, the last one so: %s; correct the function or its image, next try in %s",
			v.InRow, v.Reason, v.RetryAfter.Round(time.Millisecond)),
	}
}

func unfinished(ctx context.Context, doing string) *Error {
	return &Error{Cause: Unfinished, Message: "time ran out while " + doing, Err: ctx.Err()}
}
