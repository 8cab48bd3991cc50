package house_test

import (
	"go/ast"
	"path"
	"strings"
	"testing"
)

// Limits of the house style: longer than this no longer fits a reader's head.
const (
	maxFunctionLines = 80
	maxFileLines     = 500
	maxTestFileLines = 800
)

func TestFunctionsAndFilesAreShort(t *testing.T) {
	for _, f := range goFiles(t) {
		limit := maxFileLines
		if f.test {
			limit = maxTestFileLines
		}
		if n := f.lines(f.ast); n > limit {
			t.Errorf("%s has %d lines, more than %d: split it by topic", f.path, n, limit)
		}
		for _, d := range f.ast.Decls {
			fd, ok := d.(*ast.FuncDecl)
			if ok && fd.Body != nil && f.lines(fd) > maxFunctionLines && !isTable(f, fd) {
				t.Errorf("%s: func %s has %d lines, more than %d", f.path, fd.Name.Name, f.lines(fd), maxFunctionLines)
			}
		}
	}
}

// isTable says whether most of a function is one composite literal: rows of data.
func isTable(f file, fd *ast.FuncDecl) bool {
	rows := 0
	ast.Inspect(fd.Body, func(n ast.Node) bool {
		if c, ok := n.(*ast.CompositeLit); ok {
			rows = max(rows, f.lines(c))
			return false
		}
		return true
	})
	return f.lines(fd)-rows <= maxFunctionLines
}

func TestEveryPackageHasOneComment(t *testing.T) {
	comments := map[string][]string{}
	for _, f := range goFiles(t) {
		dir := path.Dir(f.path)
		if f.test {
			continue
		}
		if _, seen := comments[dir]; !seen {
			comments[dir] = nil
		}
		if f.ast.Doc != nil {
			comments[dir] = append(comments[dir], f.path)
		}
	}
	for dir, files := range comments {
		if len(files) != 1 {
			t.Errorf("package %s has its comment in %v, want exactly one file", dir, files)
		}
	}
}

// Sleeping for a condition makes a test slow and flaky; virtual time or waiting
// for the event does neither.
func TestTestsDoNotSleep(t *testing.T) {
	for _, f := range goFiles(t) {
		if !f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok || s.Sel.Name != "Sleep" {
				return true
			}
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" && !inBubble(f) {
				t.Errorf("%s:%d sleeps", f.path, f.set.Position(s.Pos()).Line)
			}
			return true
		})
	}
}

// inBubble: in virtual time a sleep costs nothing and is exact.
func inBubble(f file) bool {
	for _, i := range f.ast.Imports {
		if strings.Trim(i.Path.Value, `"`) == "testing/synctest" {
			return true
		}
	}
	return false
}
