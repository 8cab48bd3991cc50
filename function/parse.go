package function

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds the nesting of unknown members; our own need two levels.
const maxDepth = 64

// ParseFunction reads the JSON of a function by the contract's rules: snake_case names, lowerCamelCase accepted
// too, null means absent, unknown members ignored, duplicate members (also one in both spellings) and more than
// MaxFunctionBytes refused, invalid values refused.
func ParseFunction(data []byte) (Function, error) {
	if len(data) > MaxFunctionBytes {
		return Function{}, fmt.Errorf("function has %d bytes, at most %d are allowed", len(data), MaxFunctionBytes)
	}
	if !utf8.Valid(data) {
		return Function{}, errors.New("function is not valid UTF-8")
	}
	if err := checkDocument(data); err != nil {
		return Function{}, fmt.Errorf("read function: %w", err)
	}
	var f Function
	if err := f.fill(data); err != nil {
		return Function{}, fmt.Errorf("read function: %w", err)
	}
	return f, f.validate()
}

func (f *Function) fill(data []byte) error {
	var scale json.RawMessage
	err := fill(data, map[string]any{
		"namespace": &f.Namespace, "deployment": &f.Deployment, "tenant": &f.Tenant,
		"metadata": &f.Metadata, "scale": &scale, "oneshot": &f.Oneshot,
	})
	if err != nil || isNull(scale) {
		return err
	}
	return f.Scale.fill(scale)
}

func (s *Scale) fill(data []byte) error {
	return fill(data, map[string]any{
		"min_instances": &s.MinInstances, "max_instances": &s.MaxInstances,
		"target_cpu_usage_milli": &s.TargetCPUUsageMilli, "target_memory_usage_mib": &s.TargetMemoryUsageMiB,
		"target_in_flight_requests": &s.TargetInFlightRequests,
	})
}

// fill decodes the members of one JSON object into the fields by their snake_case names.
func fill(data []byte, fields map[string]any) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return fmt.Errorf("decode object: %w", err)
	}
	for name, value := range members {
		field, known := fields[snake(name)]
		if !known || isNull(value) {
			continue
		}
		if err := json.Unmarshal(value, field); err != nil {
			return fmt.Errorf("decode member %q: %w", name, err)
		}
	}
	return nil
}

func isNull(value json.RawMessage) bool { return len(value) == 0 || string(value) == "null" }

// snake turns lowerCamelCase into snake_case and leaves snake_case as it is.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if r >= 'A' && r <= 'Z' && i > 0 {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// checkDocument makes sure that data is exactly one JSON object in which no object, at any depth, names a member
// twice: two readers that choose different twins would disagree about the tenant.
func checkDocument(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	first, err := dec.Token()
	if err != nil {
		return fmt.Errorf("decode JSON: %w", err)
	}
	if first != json.Delim('{') {
		return errors.New("JSON is not an object")
	}
	if err := checkObject(dec, 1); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("JSON goes on after the object")
	}
	return nil
}

func checkObject(dec *json.Decoder, depth int) error {
	seen := make(map[string]bool)
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return fmt.Errorf("decode JSON: %w", err)
		}
		key := snake(fmt.Sprint(name))
		if seen[key] {
			return fmt.Errorf("member %q stands there twice", key)
		}
		seen[key] = true
		if err := checkValue(dec, depth); err != nil {
			return err
		}
	}
	return closing(dec)
}

func checkValue(dec *json.Decoder, depth int) error {
	tok, err := dec.Token()
	if err != nil {
		return fmt.Errorf("decode JSON: %w", err)
	}
	delim, nested := tok.(json.Delim)
	switch {
	case nested && depth >= maxDepth:
		return fmt.Errorf("JSON is nested deeper than %d levels", maxDepth)
	case delim == '{':
		return checkObject(dec, depth+1)
	case delim == '[':
		return checkArray(dec, depth+1)
	}
	return nil
}

func checkArray(dec *json.Decoder, depth int) error {
	for dec.More() {
		if err := checkValue(dec, depth); err != nil {
			return err
		}
	}
	return closing(dec)
}

// closing consumes the bracket at which More said no, or reports why there is none.
func closing(dec *json.Decoder) error {
	if _, err := dec.Token(); err != nil {
		return fmt.Errorf("decode JSON: %w", err)
	}
	return nil
}
