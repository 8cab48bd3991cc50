package lifetime

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const page = "../../docs/lifetimes.md"

// The table of the page, and the differences of older versions, stand between these.
const (
	tableBegins = "<!-- written by: go test ./test/lifetime -run TestPage -update -->\n"
	tableEnds   = "<!-- end -->\n"
)

// The page says what the rows say.
func TestPageIsThatOfTheRows(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		t.Fatalf("%s has no place for the table", page)
	}
	want := before + tableBegins + table(rows()) + tableEnds + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("run go test ./test/lifetime -run TestPage -update (-rows +page):\n%s", diff)
	}
}

func table(rows []row) string {
	var b strings.Builder
	b.WriteString("\n| end | client | client sees | streams | pods of a oneshot |\n| --- | --- | --- | --- | --- |\n")
	var older []string
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.end, joined(r.wires), r.want)
		for _, version := range []string{envoy139, envoy138} {
			if w, ok := r.older[version]; ok {
				older = append(older, fmt.Sprintf("| %s | %s | %s | %s |", version, r.end, joined(r.wires), w))
			}
		}
	}
	b.WriteString("\n## Differences of older versions\n\n")
	if older == nil {
		fmt.Fprintf(&b, "None: every row holds with Envoy %s and %s as well.\n\n", envoy139, envoy138)
		return b.String()
	}
	b.WriteString("| Envoy | end | client | client sees | streams | pods of a oneshot |\n| --- | --- | --- | --- | --- | --- |\n")
	return b.String() + strings.Join(older, "\n") + "\n\n"
}

func joined(wires []wire) string {
	var out []string
	for _, w := range wires {
		out = append(out, string(w))
	}
	return strings.Join(out, ", ")
}

// String is the last three columns.
func (w want) String() string {
	streams := fmt.Sprintf("%d, %s", w.streams, w.how)
	switch {
	case w.how == gone:
		streams = "1, gone"
	case w.streams == 0:
		streams = "none"
	}
	pods := w.pods.String()
	if w.how == either {
		pods = "1, given back or left to the controllers"
	}
	return fmt.Sprintf("%s | %s | %s", w.saw, streams, pods)
}

func (p fate) String() string {
	switch {
	case p.taken == 0:
		return "none"
	case p == left:
		return fmt.Sprintf("%d, left to the controllers", p.taken)
	}
	return fmt.Sprintf("%d, given back", p.taken)
}
