package skipperpb

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// unspecified ends the name of the value 0 of every enum here; what stands
// before it is the prefix that all values of the enum share.
const unspecified = "UNSPECIFIED"

// Word is an enum's value as one word: its name without the enum's prefix, in
// lower case, with underscores (in_flight_requests). It is "" for the
// unspecified value, so that the caller says what that means to its readers
// (cmp.Or), and the number for a value that this version does not know. v must
// not be nil.
func Word(v protoreflect.Enum) string {
	values := v.Descriptor().Values()
	value := values.ByNumber(v.Number())
	switch {
	case value == nil:
		return strconv.Itoa(int(v.Number()))
	case v.Number() == 0:
		return ""
	}
	prefix := strings.TrimSuffix(string(values.ByNumber(0).Name()), unspecified)
	return strings.ToLower(strings.TrimPrefix(string(value.Name()), prefix))
}

// Words is Word for a sentence: with spaces for underscores (in flight
// requests).
func Words(v protoreflect.Enum) string { return strings.ReplaceAll(Word(v), "_", " ") }
