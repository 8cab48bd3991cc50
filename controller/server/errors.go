package server

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"skipper/controller/acquire"
	"skipper/controller/retire"
	"skipper/controller/ring"
	"skipper/proto/reason"
)

// statusOf is the one place where errors of ours become statuses; those of
// another replica stay as they came. The context is the caller's own: where
// something was cancelled although the caller waits, this replica is stopping.
func statusOf(ctx context.Context, err error) error {
	var a *acquire.Error
	var given interface{ GRPCStatus() *status.Status }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &given):
		return given.GRPCStatus().Err()
	case errors.Is(err, context.Canceled) && ctx.Err() == nil:
		return reason.Error(codes.Unavailable, reason.ControllerUnavailable, "controller is stopping: ask again, another replica answers")
	case errors.Is(err, ring.ErrEmpty):
		return reason.Error(codes.Unavailable, reason.ControllerUnavailable, err.Error())
	case errors.Is(err, retire.ErrNotTheFunctions):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.As(err, &a):
		return acquireStatus(a, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "the caller left")
	case errors.Is(err, context.DeadlineExceeded):
		return reason.Error(codes.DeadlineExceeded, reason.HoldTimeout, err.Error())
	}
	return reason.Error(codes.Internal, reason.Internal, err.Error())
}

func acquireStatus(a *acquire.Error, message string) error {
	switch a.Cause {
	case acquire.InvalidFunction:
		return reason.Error(codes.InvalidArgument, reason.HeaderInvalid, message)
	case acquire.DeploymentNotFound:
		return deploymentNotFound(message)
	case acquire.AssignRejected:
		return withRetry(reason.Error(codes.FailedPrecondition, reason.AssignRejected, message), a.RetryAfter)
	case acquire.LimitReached:
		return withRetry(reason.Error(codes.ResourceExhausted, reason.LimitReached, message), a.RetryAfter)
	case acquire.PoolEmpty, acquire.Unfinished:
		if errors.Is(a.Err, context.Canceled) {
			return status.Error(codes.Canceled, message)
		}
		return reason.Error(codes.DeadlineExceeded, reason.HoldTimeout, message)
	}
	return reason.Error(codes.Internal, reason.Internal, message)
}

func deploymentNotFound(message string) error {
	return reason.Error(codes.NotFound, reason.DeploymentNotFound, message)
}

// withRetry says when another try makes sense; 0: not known.
func withRetry(err error, after time.Duration) error {
	if after <= 0 {
		return err
	}
	s, detailErr := status.Convert(err).WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	if detailErr != nil { // the status is an error and the detail encodes
		return err
	}
	return s.Err()
}
