package output

import (
	"fmt"
	"slices"
	"strings"
)

// Format is how a result is printed; the zero value is Table. It is a
// pflag.Value.
type Format string

// The formats. JSON and YAML have the same members, in snake_case.
const (
	Table Format = "table"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

// Formats lists them, for completion and messages.
func Formats() []string { return []string{string(Table), string(JSON), string(YAML)} }

// Set takes the name of a format, in any case.
func (f *Format) Set(s string) error {
	name := strings.ToLower(s)
	if !slices.Contains(Formats(), name) {
		return fmt.Errorf("use one of %s", strings.Join(Formats(), ", "))
	}
	*f = Format(name)
	return nil
}

// String is the format's name.
func (f *Format) String() string {
	if *f == "" {
		return string(Table)
	}
	return string(*f)
}

// Type is what help calls the value.
func (f *Format) Type() string { return "format" }
