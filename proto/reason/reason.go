// Package reason is the closed list of words in the x-skipper-reason header,
// and how they travel in gRPC errors from the controller to a router.
package reason

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Header carries a Reason in every answer that the function did not give itself.
const Header = "x-skipper-reason"

// Reason is why a request did not reach a function.
type Reason string

// The closed list. The status that a client sees is in the comment.
const (
	HeaderMissing         Reason = "header_missing"         // 400: no X-Skipper-Function
	HeaderRepeated        Reason = "header_repeated"        // 400: X-Skipper-Function more than once
	HeaderInvalid         Reason = "header_invalid"         // 400: not JSON, or not a usable function
	HeaderTooLarge        Reason = "header_too_large"       // 400: over 8 KiB
	FunctionUnsigned      Reason = "function_unsigned"      // 403: the listener takes signed functions only
	TokenInvalid          Reason = "token_invalid"          // 403: signed by no key that is trusted, for another audience, or too early
	TokenExpired          Reason = "token_expired"          // 403: the signed function's time is over
	FunctionNotAllowed    Reason = "function_not_allowed"   // 403: the listener does not let the deployment through
	NamespaceNotManaged   Reason = "namespace_not_managed"  // 404: not in --function-namespaces
	DeploymentNotFound    Reason = "deployment_not_found"   // 404: neither a pod nor a ReplicaSet ever seen
	HoldQueueFull         Reason = "hold_queue_full"        // 429: too many requests wait already
	LimitReached          Reason = "limit_reached"          // 429: a limit of the tenant is reached
	HoldTimeout           Reason = "hold_timeout"           // 503: no instance within the hold time
	AssignRejected        Reason = "assign_rejected"        // 503: the function's pods keep refusing the assignment
	ControllerUnavailable Reason = "controller_unavailable" // 503: no controller answers, and no table to go by
	ShuttingDown          Reason = "shutting_down"          // 503: extproc is stopping
	NoInstance            Reason = "no_instance"            // 503 by Envoy: UH, NC: no host to send to
	ConnectFailed         Reason = "connect_failed"         // 503 by Envoy: UF: the instance took no connection
	InstanceReset         Reason = "instance_reset"         // 503 by Envoy: UC, UR: the instance ended the connection
	BodyNotReplayable     Reason = "body_not_replayable"    // 503 by Envoy: the wrong pod had the request, and its body is too large to be sent again
	RequestTimeout        Reason = "request_timeout"        // 504/408 by Envoy: UT, SI, DT: idle or over time
	BadRequest            Reason = "bad_request"            // 400 by Envoy: DPE: not HTTP that can be read
	Internal              Reason = "internal"               // 500: a fault of ours
)

// domain of the ErrorInfo detail that carries a reason.
const domain = "skipper"

// Error makes a gRPC error that carries r; message names the cause and what to do.
func Error(code codes.Code, r Reason, message string) error {
	s := status.New(code, message)
	if d, err := s.WithDetails(&errdetails.ErrorInfo{Reason: string(r), Domain: domain}); err == nil {
		s = d
	}
	return s.Err()
}

// Of returns the reason that err carries, or "" where it carries none.
func Of(err error) Reason {
	for _, d := range status.Convert(err).Details() {
		if i, ok := d.(*errdetails.ErrorInfo); ok && i.GetDomain() == domain {
			return Reason(i.GetReason())
		}
	}
	return ""
}
