package skipperpb_test

import (
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	skipperpb "skipper/proto"
)

func TestWord(t *testing.T) {
	for _, row := range []struct {
		value       protoreflect.Enum
		word, words string
	}{
		{skipperpb.ScaleReason_SCALE_REASON_UNSPECIFIED, "", ""},
		{skipperpb.ScaleReason_SCALE_REASON_CPU, "cpu", "cpu"},
		{skipperpb.ScaleReason_SCALE_REASON_IN_FLIGHT_REQUESTS, "in_flight_requests", "in flight requests"},
		{skipperpb.ScaleReason(99), "99", "99"},
		{skipperpb.EventType_EVENT_TYPE_UNSPECIFIED, "", ""},
		{skipperpb.EventType_EVENT_TYPE_STUCK_INSTANCE_CLEANUP, "stuck_instance_cleanup", "stuck instance cleanup"},
		{skipperpb.EventType_EVENT_TYPE_MISCONFIGURED, "misconfigured", "misconfigured"},
		{skipperpb.EventType(-1), "-1", "-1"},
		{skipperpb.EventSeverity_EVENT_SEVERITY_WARN, "warn", "warn"},
		{skipperpb.InstanceState_INSTANCE_STATE_READY, "ready", "ready"},
	} {
		if word, words := skipperpb.Word(row.value), skipperpb.Words(row.value); word != row.word || words != row.words {
			t.Errorf("%T %d: %q and %q, want %q and %q", row.value, row.value.Number(), word, words, row.word, row.words)
		}
	}
}

// TestEveryValueHasAWord finds the enums in the compiled files: a new one, or a
// new value, is held to the naming that Word relies on.
func TestEveryValueHasAWord(t *testing.T) {
	plain, seen := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`), 0
	for _, file := range []protoreflect.FileDescriptor{skipperpb.File_skipper_proto, skipperpb.File_replica_proto} {
		for _, enum := range enumsOf(file) {
			seen++
			prefix, words := prefixOf(enum), map[string]bool{}
			if zero := enum.Values().ByNumber(0); zero == nil || string(zero.Name()) != prefix+"UNSPECIFIED" {
				t.Errorf("%s has the value 0 %v, want %sUNSPECIFIED", enum.FullName(), zero, prefix)
				continue
			}
			for _, v := range valuesOf(enum) {
				kind, err := protoregistry.GlobalTypes.FindEnumByName(enum.FullName())
				if err != nil {
					t.Fatal(err)
				}
				word := skipperpb.Word(kind.New(v.Number()))
				if v.Number() != 0 && (!plain.MatchString(word) || prefix+strings.ToUpper(word) != string(v.Name())) {
					t.Errorf("%s = %d has the word %q", v.Name(), v.Number(), word)
				}
				if words[word] {
					t.Errorf("%s = %d shares the word %q with another value", v.Name(), v.Number(), word)
				}
				words[word] = true
			}
		}
	}
	if seen < 4 {
		t.Errorf("looked at %d enums, there are at least 4", seen)
	}
}

// prefixOf is what the names of an enum's values begin with by convention:
// ScaleReason, SCALE_REASON_.
func prefixOf(enum protoreflect.EnumDescriptor) string {
	name := regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(string(enum.Name()), "${1}_$2")
	return strings.ToUpper(name) + "_"
}

// enumsOf are those of the file and of its messages.
func enumsOf(file protoreflect.FileDescriptor) []protoreflect.EnumDescriptor {
	out := declared(file.Enums())
	var visit func(protoreflect.MessageDescriptors)
	visit = func(messages protoreflect.MessageDescriptors) {
		for n := range messages.Len() {
			out = append(out, declared(messages.Get(n).Enums())...)
			visit(messages.Get(n).Messages())
		}
	}
	visit(file.Messages())
	return out
}

func declared(enums protoreflect.EnumDescriptors) []protoreflect.EnumDescriptor {
	var out []protoreflect.EnumDescriptor
	for n := range enums.Len() {
		out = append(out, enums.Get(n))
	}
	return out
}

func valuesOf(enum protoreflect.EnumDescriptor) []protoreflect.EnumValueDescriptor {
	var out []protoreflect.EnumValueDescriptor
	for n := range enum.Values().Len() {
		out = append(out, enum.Values().Get(n))
	}
	return out
}
