package docs_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	skipperpb "skipper/proto"
)

const apiPage = "../../docs/api.md"

// The page lists what the descriptors hold, with the comments of the sources,
// and says of each part whether the contract has it.
func TestInterfaceIsDocumented(t *testing.T) {
	contract := read(t, "../../proto/testdata/contract.txt")
	for _, p := range []struct {
		part, source string
		file         protoreflect.FileDescriptor
	}{
		{"skipper", "../../proto/skipper.proto", skipperpb.File_skipper_proto},
		{"replica", "../../proto/replica.proto", skipperpb.File_replica_proto},
	} {
		r := reference{contract: contract, comments: comments(read(t, p.source))}
		pin(t, apiPage, p.part, r.file(p.file))
	}
}

// reference writes tables; comments are by full name without the package.
type reference struct {
	contract string
	comments map[string]string
}

func (r reference) file(f protoreflect.FileDescriptor) string {
	var out strings.Builder
	for i := range f.Services().Len() {
		out.WriteString(r.service(f.Services().Get(i)))
	}
	for i := range f.Messages().Len() {
		out.WriteString(r.message(f.Messages().Get(i)))
	}
	for i := range f.Enums().Len() {
		out.WriteString(r.enum(f.Enums().Get(i)))
	}
	return strings.TrimSuffix(out.String(), "\n")
}

func (r reference) service(s protoreflect.ServiceDescriptor) string {
	out := r.head(string(s.Name())) + "| method | takes | answers | part | meaning |\n| --- | --- | --- | --- | --- |\n"
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		answer := ref(m.Output())
		if m.IsStreamingServer() {
			answer = "stream of " + answer
		}
		pinned := strings.Contains(r.contract, fmt.Sprintf("rpc /%s/%s(", s.FullName(), m.Name()))
		out += fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", m.Name(), ref(m.Input()), answer, part(pinned), cell(r.comments[string(s.Name()+"."+m.Name())]))
	}
	return out + "\n"
}

func (r reference) message(m protoreflect.MessageDescriptor) string {
	out := r.head(string(m.Name()))
	if m.Fields().Len() == 0 {
		return out + "No fields.\n\n"
	}
	out += "| number | field | type | part | meaning |\n| --- | --- | --- | --- | --- |\n"
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		name := fmt.Sprintf("%s.%s", m.Name(), f.Name())
		pinned := strings.Contains("\n"+r.contract, fmt.Sprintf("\n%s = %d ", name, f.Number()))
		out += fmt.Sprintf("| %d | `%s` | %s | %s | %s |\n", f.Number(), f.Name(), kind(f), part(pinned), cell(r.comments[name]))
	}
	return out + "\n"
}

func (r reference) enum(e protoreflect.EnumDescriptor) string {
	out := r.head(string(e.Name())) + "| number | value | part | meaning |\n| --- | --- | --- | --- |\n"
	for i := range e.Values().Len() {
		v := e.Values().Get(i)
		name := fmt.Sprintf("%s.%s", e.Name(), v.Name())
		pinned := strings.Contains(r.contract, fmt.Sprintf("enum skipper.%s = %d\n", name, v.Number()))
		out += fmt.Sprintf("| %d | `%s` | %s | %s |\n", v.Number(), v.Name(), part(pinned), cell(r.comments[name]))
	}
	return out + "\n"
}

func (r reference) head(name string) string {
	head := "### " + name + "\n\n"
	if c := r.comments[name]; c != "" {
		head += c + "\n\n"
	}
	return head
}

func part(pinned bool) string {
	if pinned {
		return "contract"
	}
	return "ours"
}

func kind(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return fmt.Sprintf("map of %s to %s", f.MapKey().Kind(), f.MapValue().Kind())
	case f.IsList():
		return "list of " + single(f)
	}
	return single(f)
}

func single(f protoreflect.FieldDescriptor) string {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return ref(f.Message())
	case protoreflect.EnumKind:
		return ref(f.Enum())
	}
	return f.Kind().String()
}

// ref is a link to what stands on the page, and else a name.
func ref(d protoreflect.Descriptor) string {
	if d.FullName().Parent() != "skipper" {
		return string(d.Name())
	}
	return fmt.Sprintf("[%s](#%s)", d.Name(), strings.ToLower(string(d.Name())))
}

var (
	opens   = regexp.MustCompile(`^(?:message|enum|service) (\w+) \{(\})?`)
	element = regexp.MustCompile(`^  (?:rpc (\w+)\(|(?:[\w.<>, ]+ )?(\w+) = \d+;)`)
)

// comments are the comments above what a source declares, by its name, and by
// Type.name for what stands inside. They are on lines of their own in our
// sources, and nothing is nested.
func comments(source string) map[string]string {
	out := map[string]string{}
	var block []string
	var in string
	for line := range strings.Lines(source) {
		line = strings.TrimRight(line, "\n")
		if text, is := strings.CutPrefix(strings.TrimSpace(line), "//"); is {
			block = append(block, strings.TrimSpace(text))
			continue
		}
		if m := opens.FindStringSubmatch(line); m != nil {
			in = m[1]
			out[in] = strings.Join(block, " ")
		} else if m := element.FindStringSubmatch(line); m != nil {
			out[in+"."+m[1]+m[2]] = strings.Join(block, " ")
		}
		block = nil
	}
	return out
}

func TestCommentsAreRead(t *testing.T) {
	got := comments("// File.\nsyntax = \"x\";\n\n// A thing\n// of two lines.\nmessage M {\n  string a = 1;\n  // Of b.\n  map<string, uint32> b = 2;\n\n" +
		"  // The rest.\n\n  bool c = 3;\n}\n\nmessage E {}\n\nservice S {\n  // Does.\n  rpc Do(M) returns (E);\n}\n\nenum N {\n  // Zero.\n  N_ZERO = 0;\n}\n")
	for name, want := range map[string]string{
		"M": "A thing of two lines.", "M.a": "", "M.b": "Of b.", "M.c": "", "E": "", "S.Do": "Does.", "N.N_ZERO": "Zero.",
	} {
		if c, found := got[name]; !found || c != want {
			t.Errorf("comment of %s is %q (%v), want %q", name, c, found, want)
		}
	}
}
