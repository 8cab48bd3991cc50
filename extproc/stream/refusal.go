package stream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"skipper/proto/fn"
	"skipper/proto/reason"

	"skipper/extproc/header"
	"skipper/extproc/hold"
	"skipper/extproc/trust"
	"skipper/extproc/wire"
)

// refusal is why a request is answered in place of a pod.
type refusal struct {
	reason reason.Reason
	// message says what is wrong and what to do; it ends without a full stop.
	message string
	// again is after how many seconds a new attempt makes sense; 0 for never.
	again int
}

// Retry-After in seconds: places free up quickly, instances and limits less so.
const (
	againSoon  = 1
	againLater = 5
)

// httpStatus is the status of each reason that extproc gives (contract section 1).
func httpStatus(r reason.Reason) uint32 {
	switch r {
	case reason.HeaderMissing, reason.HeaderRepeated, reason.HeaderInvalid, reason.HeaderTooLarge:
		return http.StatusBadRequest
	case reason.FunctionUnsigned, reason.TokenInvalid, reason.TokenExpired, reason.FunctionNotAllowed:
		return http.StatusForbidden
	case reason.NamespaceNotManaged, reason.DeploymentNotFound:
		return http.StatusNotFound
	case reason.HoldQueueFull, reason.LimitReached:
		return http.StatusTooManyRequests
	case reason.HoldTimeout, reason.AssignRejected, reason.ControllerUnavailable, reason.ShuttingDown, reason.NoInstance, reason.ConnectFailed:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func grpcCode(httpStatus uint32) codes.Code {
	switch httpStatus {
	case http.StatusBadRequest:
		return codes.InvalidArgument
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusNotFound:
		return codes.NotFound
	case http.StatusTooManyRequests:
		return codes.ResourceExhausted
	case http.StatusServiceUnavailable:
		return codes.Unavailable
	}
	return codes.Internal
}

// reply encodes the refusal of a request for f, which may be nil.
func (r *refusal) reply(f *header.Function) *wire.Reply {
	code := httpStatus(r.reason)
	headers := [][2]string{{reason.Header, string(r.reason)}, {"content-type", "text/plain; charset=utf-8"}}
	if r.again > 0 {
		headers = append(headers, [2]string{"retry-after", strconv.Itoa(r.again)})
	}
	answer := wire.Immediate{
		Status: code, GRPC: uint32(grpcCode(code)), Headers: headers,
		Body: r.message + "\n", Details: "skipper_" + string(r.reason),
	}
	if f != nil {
		answer.Names = wire.Names{Namespace: f.Key.Namespace, Deployment: f.Key.Deployment, Tenant: f.Key.Tenant}
	}
	return answer.Reply()
}

func healthy() *wire.Reply {
	return wire.Immediate{
		Status: http.StatusOK, GRPC: uint32(codes.OK), Headers: [][2]string{{"content-type", "text/plain; charset=utf-8"}},
		Body: "ok\n", Details: "skipper_healthz",
	}.Reply()
}

// headerRefusal tells what is wrong with the header that names the function.
func headerRefusal(err error) *refusal {
	if e := (*trust.Error)(nil); errors.As(err, &e) {
		return &refusal{reason: e.Reason, message: "X-Skipper-Function: " + e.Message}
	}
	if errors.Is(err, fn.ErrTooLarge) {
		return &refusal{reason: reason.HeaderTooLarge, message: "X-Skipper-Function: " + err.Error()}
	}
	return &refusal{reason: reason.HeaderInvalid, message: "X-Skipper-Function: " + err.Error()}
}

// lostRecord is for a later pass of a request that is not in the register: this
// process has started since, or the request is over.
func lostRecord() *refusal {
	return &refusal{reason: reason.NoInstance, message: "the instance could not be reached, and the request is no longer known here: send it again", again: againSoon}
}

func stopping() *refusal {
	return &refusal{reason: reason.ShuttingDown, message: "this router is stopping: send the request again", again: againSoon}
}

func fullRefusal(err *hold.FullError) *refusal {
	return &refusal{reason: reason.HoldQueueFull, message: err.Error() + ": try again, or send less at once", again: againSoon}
}

// controllerRefusal translates the controller's final word.
func controllerRefusal(err error) *refusal {
	r := &refusal{reason: reasonOf(err), message: status.Convert(err).Message()}
	switch httpStatus(r.reason) {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		r.again = retryAfter(err)
		if reason.IsPermanent(err) {
			r.again = 0
		}
	}
	if r.reason == reason.ControllerUnavailable {
		r.message = "no controller could answer: " + r.message
	}
	return r
}

// retryAfter is when the controller says that another try makes sense, in whole
// seconds, at least 1.
func retryAfter(err error) int {
	for _, d := range status.Convert(err).Details() {
		if i, ok := d.(*errdetails.RetryInfo); ok {
			return max(1, int(math.Ceil(i.GetRetryDelay().AsDuration().Seconds())))
		}
	}
	return againLater
}

// reasonOf is the reason in err if it is one that we know, else what follows
// from its code.
func reasonOf(err error) reason.Reason {
	if r := reason.Of(err); r != "" && (r == reason.Internal || httpStatus(r) != http.StatusInternalServerError) {
		return r
	}
	switch status.Code(err) {
	case codes.InvalidArgument:
		return reason.HeaderInvalid
	case codes.NotFound:
		return reason.NamespaceNotManaged
	case codes.ResourceExhausted:
		return reason.LimitReached
	case codes.FailedPrecondition:
		return reason.AssignRejected
	case codes.DeadlineExceeded:
		return reason.HoldTimeout
	case codes.Unavailable, codes.Canceled, codes.Aborted, codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated:
		return reason.ControllerUnavailable
	}
	return reason.Internal
}

// timeoutRefusal ends a wait of the given length; last is the last trouble with
// the controller, nil where there was none.
func timeoutRefusal(f string, held time.Duration, last error) *refusal {
	text := fmt.Sprintf("no instance of %s within %s", f, held.Round(time.Millisecond))
	switch {
	case last == nil || isLocalDeadline(last):
		return &refusal{reason: reason.HoldTimeout, message: text + ": try again, or look at the pool", again: againLater}
	case reasonOf(last) == reason.ControllerUnavailable:
		return &refusal{reason: reason.ControllerUnavailable, message: text + ", no controller could answer: " + status.Convert(last).Message(), again: againLater}
	}
	return &refusal{reason: reason.HoldTimeout, message: text + ": " + status.Convert(last).Message(), again: againLater}
}

// isLocalDeadline reports that the time ran out on our side, without a word from
// the controller.
func isLocalDeadline(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || (status.Code(err) == codes.DeadlineExceeded && reason.Of(err) == "" && status.Convert(err).Message() == context.DeadlineExceeded.Error())
}
