package function

import (
	"errors"
	"fmt"
	"regexp"
)

// MaxFunctionBytes bounds the JSON of a function; the contract refuses a longer one everywhere.
const MaxFunctionBytes = 8 << 10

// Function is a Deployment's pool as used by one tenant: the content of X-Skipper-Function.
type Function struct {
	Namespace  string `json:"namespace"`
	Deployment string `json:"deployment"`
	Tenant     string `json:"tenant"`
	// Metadata is opaque to Skipper: whatever the caller wants the pod to know.
	Metadata string `json:"metadata"`
	Scale    Scale  `json:"scale"`
	// Oneshot pods serve exactly one request and are deleted afterwards.
	Oneshot bool `json:"oneshot"`
}

// Scale says how many instances a function has. A target of 0 means "not scaled on this". It does not concern the
// pod, and may change without a new assignment.
type Scale struct {
	MinInstances           uint32 `json:"min_instances"`
	MaxInstances           uint32 `json:"max_instances"`
	TargetCPUUsageMilli    uint32 `json:"target_cpu_usage_milli"`
	TargetMemoryUsageMiB   uint32 `json:"target_memory_usage_mib"`
	TargetInFlightRequests uint32 `json:"target_in_flight_requests"`
}

// SameIdentity tells whether both name the same function: namespace, deployment, tenant and oneshot.
func (f Function) SameIdentity(other Function) bool {
	return f.Namespace == other.Namespace && f.Deployment == other.Deployment &&
		f.Tenant == other.Tenant && f.Oneshot == other.Oneshot
}

// String is the identity in words, for logs and messages.
func (f Function) String() string {
	kind := "function"
	if f.Oneshot {
		kind = "oneshot function"
	}
	return fmt.Sprintf("%s %s/%s of tenant %q", kind, f.Namespace, f.Deployment, f.Tenant)
}

// labelValue is the form of a Kubernetes label value, which a tenant must have; its length is checked beside it.
var labelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

const maxLabelValue = 63

func (f Function) validate() error {
	switch {
	case f.Namespace == "":
		return errors.New(`member "namespace" is missing or empty`)
	case f.Deployment == "":
		return errors.New(`member "deployment" is missing or empty`)
	case len(f.Tenant) > maxLabelValue || !labelValue.MatchString(f.Tenant):
		return errors.New(`member "tenant" is missing or not a valid label value`)
	case f.Scale.MaxInstances < 1:
		return errors.New(`member "scale" is missing or its max_instances is not at least 1`)
	case f.Scale.MinInstances > f.Scale.MaxInstances:
		return errors.New(`member "scale" has min_instances above max_instances`)
	}
	return nil
}
