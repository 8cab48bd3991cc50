package house_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The list of reasons is closed: what the code can say and what the page
// explains must be the same words.
func TestEveryReasonIsDocumented(t *testing.T) {
	inCode := matches(t, "../../proto/reason/reason.go", `Reason = "([a-z_]+)"`)
	onPage := matches(t, "../../docs/responses.md", "(?m)^\\| `([a-z_]+)` \\|")
	if len(inCode) == 0 {
		t.Fatal("no reason found in the code: the pattern is broken")
	}
	if d := cmp.Diff(inCode, onPage, cmpopts.SortSlices(func(a, b string) bool { return a < b })); d != "" {
		t.Errorf("reasons (-code +docs/responses.md):\n%s", d)
	}
}

// Links between pages of the repository lead somewhere.
func TestLinksResolve(t *testing.T) {
	pages := []string{"../../README.md"}
	for _, glob := range []string{"../../docs/*.md", "../../*/README.md"} {
		more, err := filepath.Glob(glob)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, more...)
	}
	for _, page := range pages {
		for _, link := range matches(t, page, `\]\(([^)#:]+)\)`) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), link)); err != nil {
				t.Errorf("%s links to %s, which is not there", page, link)
			}
		}
	}
}

func matches(t *testing.T, file, pattern string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(b), -1) {
		out = append(out, m[1])
	}
	return out
}
