package fn

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	skipperpb "skipper/proto"
)

// Validate reports everything that is wrong with f at once, in words for the
// caller; nil means that f is usable. Deployment and tenant become label
// values, so what is no label value is refused rather than changed.
func Validate(f *skipperpb.Function) error {
	if f == nil {
		return errors.New("function is missing: send namespace, deployment, tenant and scale")
	}
	return errors.Join(
		nameError("namespace", f.GetNamespace(), validation.IsDNS1123Label),
		nameError("deployment", f.GetDeployment(), deploymentErrors),
		nameError("tenant", f.GetTenant(), validation.IsValidLabelValue),
		scaleError(f.GetScale()),
	)
}

func deploymentErrors(s string) []string {
	return append(validation.IsDNS1123Subdomain(s), validation.IsValidLabelValue(s)...)
}

func nameError(member, value string, check func(string) []string) error {
	if value == "" {
		return fmt.Errorf("%s is empty: set it", member)
	}
	if errs := check(value); len(errs) > 0 {
		return fmt.Errorf("%s %q cannot be used: %s", member, abbreviate(value), errs[0])
	}
	return nil
}

func scaleError(s *skipperpb.Scale) error {
	switch {
	case s == nil:
		return errors.New(`scale is missing: set at least {"max_instances":1}`)
	case s.GetMaxInstances() < 1:
		return errors.New("scale.max_instances is 0: set it to 1 or more")
	case s.GetMinInstances() > s.GetMaxInstances():
		return fmt.Errorf("scale.min_instances %d is above max_instances %d: lower it", s.GetMinInstances(), s.GetMaxInstances())
	}
	return nil
}

// checkMembers refuses a JSON text in which an object, at any depth, has a
// member twice; snake_case and lowerCamelCase count as the same member.
func checkMembers(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var open []map[string]bool // members of each object being read; nil for an array
	expectName := false
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read function JSON: %w", err)
		}
		switch v := t.(type) {
		case json.Delim:
			if open, err = nest(open, v); err != nil {
				return err
			}
			expectName = inObject(open)
			continue
		case string:
			if expectName {
				if err := note(open[len(open)-1], v); err != nil {
					return err
				}
				expectName = false
				continue
			}
		}
		expectName = inObject(open)
	}
}

// maxDepth bounds the work that a hostile header can cause; a function needs 2.
const maxDepth = 32

func nest(open []map[string]bool, d json.Delim) ([]map[string]bool, error) {
	switch d {
	case '{':
		open = append(open, map[string]bool{})
	case '[':
		open = append(open, nil)
	default:
		return open[:len(open)-1], nil
	}
	if len(open) > maxDepth {
		return nil, fmt.Errorf("function JSON is nested deeper than %d", maxDepth)
	}
	return open, nil
}

func inObject(open []map[string]bool) bool {
	return len(open) > 0 && open[len(open)-1] != nil
}

func note(seen map[string]bool, name string) error {
	n := strings.ToLower(strings.ReplaceAll(name, "_", ""))
	if seen[n] {
		return fmt.Errorf("function JSON has member %q twice: keep one", abbreviate(name))
	}
	seen[n] = true
	return nil
}

// plain strips the prefix that protobuf puts before its messages, whose space
// is randomly a no-break space.
func plain(err error) string {
	s := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	return strings.TrimPrefix(s, "proto: ")
}

// abbreviate keeps a hostile value from flooding logs and answers.
func abbreviate(s string) string {
	if len(s) <= 80 {
		return s
	}
	return s[:80] + "..."
}
