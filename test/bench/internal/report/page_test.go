package report_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"skipper/test/bench/internal/report"
)

func TestPageKeepsWhatWasNotMeasured(t *testing.T) {
	p := report.ReadPage("# Title\n\nHead.\n\n## P3: c\n\nold\n\n## P1: a\n\n| x |\n| --- |\n\ntext\n")
	p.Sections["P3: c"] = "new\n\n"
	p.Sections["P2: b"] = "\nmore\n"
	want := "# Title\n\nHead.\n\n## P1: a\n\n| x |\n| --- |\n\ntext\n\n## P2: b\n\nmore\n\n## P3: c\n\nnew\n"
	if d := cmp.Diff(want, p.Markdown()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(want, report.ReadPage(want).Markdown()); d != "" {
		t.Errorf("a page that is read and written changes (-want +got):\n%s", d)
	}
}
