package report

import (
	"slices"
	"strings"
)

// Page is a Markdown page of sections, in the order of their titles.
type Page struct {
	Head     string
	Sections map[string]string // by title: what follows it
}

const sectionMark = "\n## "

// ReadPage takes a page apart; an empty one has no sections.
func ReadPage(text string) Page {
	parts := strings.Split(text, sectionMark)
	p := Page{Head: parts[0], Sections: map[string]string{}}
	for _, s := range parts[1:] {
		title, body, _ := strings.Cut(s, "\n")
		p.Sections[title] = strings.Trim(body, "\n") + "\n"
	}
	return p
}

// Markdown puts the page together.
func (p Page) Markdown() string {
	out := strings.TrimRight(p.Head, "\n") + "\n"
	titles := make([]string, 0, len(p.Sections))
	for t := range p.Sections {
		titles = append(titles, t)
	}
	slices.Sort(titles)
	for _, t := range titles {
		out += sectionMark + t + "\n\n" + strings.Trim(p.Sections[t], "\n") + "\n"
	}
	return out
}
