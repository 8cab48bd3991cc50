package output

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func grid() Grid {
	g := Grid{Columns: []string{"NAME", "STATE"}, Empty: "nothing here"}
	g.Add(Text("a-long-name"), Toned("ready", Good))
	g.Add(Text("b"), Text(""))
	return g
}

func TestGridLinesUpItsColumns(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := (Printer{Out: &b}).Print(nil, grid()); err != nil {
		t.Fatal(err)
	}
	want := "NAME          STATE\na-long-name   ready\nb             -\n"
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
}

// Colours must not move columns: without the codes it is the plain text.
func TestColouredIsPlainWithoutItsCodes(t *testing.T) {
	t.Parallel()
	var plain, coloured bytes.Buffer
	if err := (Printer{Out: &plain}).Print(nil, grid()); err != nil {
		t.Fatal(err)
	}
	if err := (Printer{Out: &coloured, Colour: true}).Print(nil, grid()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(coloured.String(), tones[Good]+"ready") {
		t.Errorf("no colour in %q", coloured.String())
	}
	bare := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(coloured.String(), "")
	if d := cmp.Diff(plain.String(), bare); d != "" {
		t.Error(d)
	}
}

func TestFormats(t *testing.T) {
	t.Parallel()
	value := []map[string]any{{"name": "a<b", "n": 1}}
	for format, want := range map[Format]string{
		Table: "NAME          STATE\na-long-name   ready\nb             -\n",
		JSON:  "[\n  {\n    \"n\": 1,\n    \"name\": \"a<b\"\n  }\n]\n",
		YAML:  "- \"n\": 1\n  name: a<b\n",
	} {
		var b bytes.Buffer
		if err := (Printer{Out: &b, Format: format}).Print(value, grid()); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, b.String()); d != "" {
			t.Errorf("%s: %s", format, d)
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	for format, want := range map[Format]string{
		Table: "x  y\nx  y\n", JSON: "{\"a\":1}\n{\"a\":1}\n", YAML: "---\na: 1\n---\na: 1\n",
	} {
		var b bytes.Buffer
		for range 2 {
			if err := (Printer{Out: &b, Format: format}).Line(map[string]int{"a": 1}, []Cell{Text("x"), Text("y")}); err != nil {
				t.Fatal(err)
			}
		}
		if d := cmp.Diff(want, b.String()); d != "" {
			t.Errorf("%s: %s", format, d)
		}
	}
}

func TestEmptyGridAndSheet(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := (Printer{Out: &b}).Print(nil, Grid{Empty: "nothing here"}); err != nil || b.String() != "nothing here\n" {
		t.Errorf("printed %q, %v", b.String(), err)
	}
	b.Reset()
	s := Sheet{Lists: []List{{"Left out", Grid{}}, {"Shown", grid()}}}
	s.Add("Name", Text("x"))
	s.Add("Nothing", Text(nil))
	if err := (Printer{Out: &b}).Print(nil, s); err != nil {
		t.Fatal(err)
	}
	if want := "Name:   x\n\nShown\nNAME          STATE\na-long-name   ready\nb             -\n"; b.String() != want {
		t.Error(cmp.Diff(want, b.String()))
	}
}

func TestFormatFlag(t *testing.T) {
	t.Parallel()
	var f Format
	if err := f.Set("JSON"); err != nil || f != JSON || f.String() != "json" {
		t.Errorf("%v %v", f, err)
	}
	if err := f.Set("xml"); err == nil || f != JSON {
		t.Errorf("xml was taken: %v", f)
	}
}

func TestNoColoursIntoFiles(t *testing.T) {
	t.Parallel()
	f, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if Colours(f, func(string) string { return "" }) || Colours(&bytes.Buffer{}, func(string) string { return "" }) {
		t.Error("a file is taken for a terminal")
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "plain", "a\tb\nc", "\x1b[2J", "\xff\xfe", "\u202e", "\u009b31m"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Clean(s)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("%q became %q", s, got)
		}
		if Clean(got) != got {
			t.Errorf("%q: cleaned twice it is another: %q, %q", s, got, Clean(got))
		}
	})
}
