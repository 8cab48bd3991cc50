package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// file is a parsed Go file of this repository, generated ones apart.
type file struct {
	path string // relative to the root, with slashes
	test bool
	ast  *ast.File
	set  *token.FileSet
}

func (f file) ownImports() []string {
	var out []string
	for _, i := range f.ast.Imports {
		p := strings.Trim(i.Path.Value, `"`)
		if own, ok := strings.CutPrefix(p, "skipper/"); ok {
			out = append(out, own)
		}
	}
	return out
}

func (f file) lines(n ast.Node) int {
	return f.set.Position(n.End()).Line - f.set.Position(n.Pos()).Line + 1
}

// goFiles parses every Go file of the main module.
func goFiles(t *testing.T) []file {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	var out []file
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		if d.IsDir() {
			return skipDir(p, rel, d.Name())
		}
		if !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, ".pb.go") {
			return nil
		}
		a, err := parser.ParseFile(set, p, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		out = append(out, file{filepath.ToSlash(rel), strings.HasSuffix(p, "_test.go"), a, set})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// skipDir leaves out testdata, hidden folders and Go modules of their own.
func skipDir(p, rel, name string) error {
	if rel == "." {
		return nil
	}
	if name == "testdata" || strings.HasPrefix(name, ".") {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}
