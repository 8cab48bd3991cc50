package docs_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	anchored = regexp.MustCompile(`\]\(([^)#: ]*)#([^) ]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// Links into a page lead to a heading of it; that pages are there is for
// test/house.
func TestAnchorsResolve(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, page := range append(pages, "../../README.md") {
		for _, m := range anchored.FindAllStringSubmatch(read(t, page), -1) {
			to := page
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(page), m[1])
			}
			if seen++; !slices.Contains(anchors(read(t, to)), m[2]) {
				t.Errorf("%s links to %s#%s: there is no such heading", page, m[1], m[2])
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d links found: the pattern is broken", seen)
	}
}

// anchors are the names that GitHub gives to headings.
func anchors(text string) []string {
	var out []string
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(strings.TrimSpace(name), " ", "-"))
	}
	return out
}
