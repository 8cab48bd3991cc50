package reason

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// retryKey and never mark an ErrorInfo whose error does not pass by itself.
const (
	retryKey = "retry"
	never    = "never"
)

// Permanent is like Error, for what another try does not change: the client must
// ask for something else, or somebody must change the configuration.
func Permanent(code codes.Code, r Reason, message string) error {
	s := status.New(code, message)
	if d, err := s.WithDetails(&errdetails.ErrorInfo{Reason: string(r), Domain: domain, Metadata: map[string]string{retryKey: never}}); err == nil {
		s = d
	}
	return s.Err()
}

// IsPermanent says that err was made by Permanent, here or at another replica.
func IsPermanent(err error) bool {
	for _, d := range status.Convert(err).Details() {
		if i, ok := d.(*errdetails.ErrorInfo); ok && i.GetDomain() == domain {
			return i.GetMetadata()[retryKey] == never
		}
	}
	return false
}
