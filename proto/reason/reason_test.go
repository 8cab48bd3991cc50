package reason_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"skipper/proto/reason"
)

func TestErrorCarriesItsReason(t *testing.T) {
	err := reason.Error(codes.NotFound, reason.DeploymentNotFound, "deployment x was never seen")
	if got := reason.Of(err); got != reason.DeploymentNotFound {
		t.Errorf("Of = %q", got)
	}
	if s := status.Convert(err); s.Code() != codes.NotFound || s.Message() != "deployment x was never seen" {
		t.Errorf("status = %v", s)
	}
}

func TestOfIsEmptyWithoutAReason(t *testing.T) {
	for _, err := range []error{nil, errors.New("x"), status.Error(codes.Unavailable, "y")} {
		if got := reason.Of(err); got != "" {
			t.Errorf("Of(%v) = %q", err, got)
		}
	}
}

func TestPermanentSaysThatNoRetryHelps(t *testing.T) {
	err := reason.Permanent(codes.ResourceExhausted, reason.LimitReached, "too many")
	if reason.Of(err) != reason.LimitReached || status.Convert(err).Message() != "too many" || !reason.IsPermanent(status.FromProto(status.Convert(err).Proto()).Err()) {
		t.Errorf("%v is of %q, permanent %v", err, reason.Of(err), reason.IsPermanent(err))
	}
	for _, err := range []error{nil, errors.New("x"), status.Error(codes.ResourceExhausted, "y"), reason.Error(codes.ResourceExhausted, reason.LimitReached, "z")} {
		if reason.IsPermanent(err) {
			t.Errorf("%v is permanent", err)
		}
	}
}
