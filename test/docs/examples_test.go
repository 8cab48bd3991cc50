package docs_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"testing"

	"skipper/proto/fn"
)

// What pages tell readers to send is taken, and what they tell them to write is
// Go.
func TestExamplesAreRead(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	header := regexp.MustCompile(`-H 'X-Skipper-Function: ([^']+)'`)
	program := regexp.MustCompile("(?s)```go\n(package .*?)```")
	headers, programs := 0, 0
	for _, page := range append(pages, "../../README.md") {
		text := read(t, page)
		for _, m := range header.FindAllStringSubmatch(text, -1) {
			headers++
			if _, err := fn.Parse([]byte(m[1])); err != nil {
				t.Errorf("%s: header %s: %v", page, m[1], err)
			}
		}
		for _, m := range program.FindAllStringSubmatch(text, -1) {
			programs++
			if _, err := parser.ParseFile(token.NewFileSet(), page, m[1], parser.AllErrors); err != nil {
				t.Errorf("%s: program: %v", page, err)
			}
		}
	}
	if headers < 4 || programs < 1 {
		t.Errorf("only %d headers and %d programs found: the patterns are broken", headers, programs)
	}
}
