// Package fn reads, checks and writes functions: the JSON of the
// X-Skipper-Function header, and the identity by which functions are compared.
//
// All of it is pure. Extproc, controller and operator tools share it, so that
// what one of them accepts, the others accept too.
package fn

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/encoding/protojson"

	skipperpb "skipper/proto"
)

// MaxJSONBytes is the longest function JSON that Parse takes (contract section 1).
const MaxJSONBytes = 8 << 10

// ErrTooLarge is returned by Parse for more than MaxJSONBytes.
var ErrTooLarge = errors.New("function is larger than 8 KiB: shorten metadata")

// Key is the identity of a function. It is comparable: two functions are the
// same exactly if their keys are equal, whatever their metadata and scale.
type Key struct {
	Namespace, Deployment, Tenant string
	Oneshot                       bool
}

// KeyOf returns the identity of f; that of nil is the zero Key.
func KeyOf(f *skipperpb.Function) Key {
	return Key{f.GetNamespace(), f.GetDeployment(), f.GetTenant(), f.GetOneshot()}
}

// Hash is xxhash64 over the four fields as contract section 1 lays them out.
// It speeds up comparisons and places functions on the ring; equality of
// hashes is not equality of functions.
func (k Key) Hash() uint64 {
	b := make([]byte, 0, len(k.Namespace)+len(k.Deployment)+len(k.Tenant)+4)
	for _, s := range []string{k.Namespace, k.Deployment, k.Tenant} {
		b = append(append(b, s...), 0)
	}
	if k.Oneshot {
		return xxhash.Sum64(append(b, 1))
	}
	return xxhash.Sum64(append(b, 0))
}

// String is "namespace/deployment/tenant", with "/oneshot" behind it for a
// oneshot. None of the parts can hold a slash, so it is unambiguous.
func (k Key) String() string {
	s := k.Namespace + "/" + k.Deployment + "/" + k.Tenant
	if k.Oneshot {
		s += "/oneshot"
	}
	return s
}

// Parse reads the JSON of a function and validates it. Names are accepted in
// snake_case and lowerCamelCase; unknown members are ignored; a member that
// stands twice, under either name and at any depth, is refused. Errors say
// what is wrong and are meant for the caller; ErrTooLarge can be matched.
func Parse(b []byte) (*skipperpb.Function, error) {
	if len(b) > MaxJSONBytes {
		return nil, ErrTooLarge
	}
	if err := checkMembers(b); err != nil {
		return nil, err
	}
	f := &skipperpb.Function{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, f); err != nil {
		return nil, fmt.Errorf("read function JSON: %s", plain(err))
	}
	if err := Validate(f); err != nil {
		return nil, err
	}
	return f, nil
}

// wire fixes member names and order of the JSON that Marshal writes.
type wire struct {
	Namespace  string     `json:"namespace"`
	Deployment string     `json:"deployment"`
	Tenant     string     `json:"tenant"`
	Metadata   string     `json:"metadata,omitempty"`
	Scale      *wireScale `json:"scale"`
	Oneshot    bool       `json:"oneshot,omitempty"`
}

type wireScale struct {
	MinInstances           uint32 `json:"min_instances"`
	MaxInstances           uint32 `json:"max_instances"`
	TargetCPUUsageMilli    uint32 `json:"target_cpu_usage_milli"`
	TargetMemoryUsageMiB   uint32 `json:"target_memory_usage_mib"`
	TargetInFlightRequests uint32 `json:"target_in_flight_requests"`
}

// Marshal writes f as JSON in snake_case. Equal functions give equal bytes, so
// the result can be hashed, signed and compared. A nil scale is written as
// zeros. The result holds no control character and so fits a header.
func Marshal(f *skipperpb.Function) []byte {
	s := f.GetScale()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // what fits 8 KiB in a header should fit as it comes back
	err := e.Encode(wire{
		f.GetNamespace(), f.GetDeployment(), f.GetTenant(), f.GetMetadata(),
		&wireScale{s.GetMinInstances(), s.GetMaxInstances(), s.GetTargetCpuUsageMilli(), s.GetTargetMemoryUsageMib(), s.GetTargetInFlightRequests()},
		f.GetOneshot(),
	})
	if err != nil { // strings, numbers and bools always encode
		panic(fmt.Sprintf("encode function: %v", err))
	}
	// The one control character that encoding/json leaves as it is.
	return bytes.ReplaceAll(bytes.TrimSuffix(b.Bytes(), []byte("\n")), []byte{0x7f}, []byte(`\u007f`))
}
