package view

import (
	"fmt"
	"strings"

	skipperpb "skipper/proto"
	"skipper/proto/fn"
)

// ParseFunction reads how a function is named on the command line:
// NAMESPACE/DEPLOYMENT/TENANT, "/oneshot" behind it for a oneshot; or the JSON
// of an X-Skipper-Function header. A name gives a function without a scale, and
// is fn.Key.String read back; JSON gives all that the header says.
func ParseFunction(text string) (*skipperpb.Function, error) {
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		return fn.Parse([]byte(text))
	}
	parts := strings.Split(text, "/")
	oneshot := len(parts) == 4 && parts[3] == "oneshot"
	if len(parts) != 3 && !oneshot {
		return nil, fmt.Errorf("%.200q names no function: write NAMESPACE/DEPLOYMENT/TENANT, with /oneshot behind it for a oneshot, or the header's JSON", text)
	}
	f := &skipperpb.Function{Namespace: parts[0], Deployment: parts[1], Tenant: parts[2], Oneshot: oneshot}
	check := &skipperpb.Function{Namespace: f.GetNamespace(), Deployment: f.GetDeployment(), Tenant: f.GetTenant(), Scale: &skipperpb.Scale{MaxInstances: 1}}
	if err := fn.Validate(check); err != nil {
		return nil, fmt.Errorf("use function %.200q: %w", text, err)
	}
	return f, nil
}
